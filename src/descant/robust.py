"""`robustness`: methods under attack on the same task and data, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from descant.attacks import Attack
from descant.catalog import Spec
from descant.comparison import Asked, refuse_both
from descant.data import FederatedData
from descant.engine import Record
from descant.errors import SettingError, unknown
from descant.experiment import Callback, Run
from descant.experiment.attackgrid import Place, attack_grid, percent
from descant.experiment.declaration import Settings
from descant.experiment.objects import Problem, object_cell
from descant.experiment.outcomes import outcomes, outcomes_frame, worst_cases
from descant.files import claim_folder
from descant.methods import Method
from descant.task import Task
from descant.written import check_names, write_ours

if TYPE_CHECKING:  # tables and charts are imported where they are used
    import altair as alt
    import polars as pl

    from descant.report.robust import RobustReport

Attacks = Attack | Spec | Sequence[Attack | Spec]  # what the setting `attacks` of a run takes


def robustness(
    task: Task | Callable[[int], Task] | str | Path,
    data: FederatedData | Callable[[int], FederatedData] | None = None,
    methods: Mapping[str, Method | Spec] | Sequence[Method | Spec] | None = None,
    *,
    attacks: Mapping[str, Attacks | None] | Sequence[Attack | Spec] | None = None,
    fractions: Sequence[float] | None = None,
    assumed: bool | Sequence[bool | int | float] | None = None,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    progress: bool | Callable[[Record], None] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    **settings: Any,
) -> Robustness:
    """Run several methods under several attacks by several shares of the clients, each with several seeds.

    With a folder `out` it is what `descant robustness` does: runs that are finished there are read and not run
    again, one that was interrupted is gone on with, and several processes may share the work. Who attacks follows
    from the seed, the same clients for every method and attack, and a larger share contains the smaller.

    Args:
        task: what the clients learn, or a function of the seed that makes it: then every seed draws a model of its
            own to start from. Or the path of a settings file, with data, model, methods, attacks, fractions and
            seeds; further settings then override those of the file.
        data: who holds which examples, or a function of the seed that makes them: then every seed deals them anew.
        methods: a mapping from labels to methods, or a list, which is labelled by name; by object, name or spec.
        attacks: a mapping from labels to attacks, each what `attacks` of `simulate` takes, or a list, which is
            labelled by name. A mapping with `attacks` and `fractions` has fractions of its own.
        fractions: shares of the clients that attack, from 0 to below 1. At 0 nobody does: one run for all attacks.
        assumed: how many attackers defences with a field `f` assume. By default what they say; True is the true
            share, or the most that a defence survives where that is less. Numbers or shares are a grid of its own,
            each against every fraction; what a defence could not survive is refused.
        seeds: a list of seeds, or how many: 3 are 0, 1 and 2. By default one.
        out: a folder to leave the runs in, one folder each.
        progress: True shows bars; a function is called with every record as it is made.
        callbacks: what looks on at every run, one after the other.
        settings: any other setting of `simulate` but `seed`, `label` and `malicious`, the same for all runs.
    """
    asked = Asked.of(seeds, out, progress, callbacks, settings)
    own = {"attacks": attacks, "fractions": fractions, "assumed": assumed}
    values = asked.values | {name: _plain(value) for name, value in own.items() if value is not None}
    if isinstance(task, str | Path):
        from descant.experiment.settings import read_settings

        refuse_both(task, data=data, methods=methods)
        grid = attack_grid(read_settings(Path(task)) | values, asked.folder, asked.callbacks)
    else:
        if data is None:
            raise SettingError(
                "data: a table of robustness needs it, as in descant.robustness(task, data, methods)"
            )
        problem = Problem(task, data)
        make = partial(object_cell, problem)
        grid = attack_grid(values | {"methods": methods}, asked.folder, asked.callbacks, make, Settings)
    return Robustness(grid.placed(asked.carried_out(grid.grid)))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


TABLES = ("robustness.csv", "robustness.parquet")


def check_files(folder: Path) -> None:
    """Refuse a folder with files of somebody else where the tables and the page of `Robustness.save` would be."""
    from descant.report.place import check_page

    check_page(folder / "robustness.html")
    check_names(folder, TABLES)


class Robustness:
    """Runs under attack: `runs` has those of every place (method, attack, fraction), one a seed.

    Figures are the test metric of the benign clients, by the models that clients deploy. `rule` names the rounds
    that they are of: "chosen_on_valid" (the default, where there are validation data), "last", or "best_on_test",
    which papers print; `first` chooses among rounds from that one on. A notebook shows the tables.
    """

    def __init__(self, runs: Mapping[Place, Sequence[Run]]) -> None:
        if not runs:
            raise SettingError("a table of robustness needs at least one run")
        self.runs = {place: list(there) for place, there in runs.items()}

    def __iter__(self) -> Iterator[Run]:
        """Every run once, also one that several places share."""
        return iter({id(run): run for runs in self.runs.values() for run in runs}.values())

    def table(self, rule: str | None = None, first: int = 0) -> pl.DataFrame:
        """One row a place: the mean over seeds, what they differ by, the variance over clients, and collapses.

        Where a seed collapsed there are no figures; `collapsed` counts these seeds, and `collapsed_round` is the
        earliest. `assumed` is what the method's defence takes the number or share of attackers to be, and null
        where it has none that does, or takes it to be the most that it survives; `in_table` is false in the grid of
        assumed attackers. `examples_per_client` are example gradients of the whole run, and `equal_compute` is
        false where those of the methods differ under the same attack by the same share.
        """
        return outcomes_frame(outcomes(self.runs, rule, first), self._metric)

    def worst(self, rule: str | None = None, first: int = 0) -> pl.DataFrame:
        """One row a method and fraction: its worst attack there. A collapse is worse than any figure.

        The attack is "none" of a method that sends nothing, which no attack reaches.
        """
        better = next(iter(self)).history.higher_is_better
        return outcomes_frame(worst_cases(outcomes(self.runs, rule, first), better).values(), self._metric)

    def verdict(self, rule: str | None = None, first: int = 0) -> str:
        """For every fraction, which method has the best worst case, and which collapse."""
        return self._report(rule, first).verdict()

    def plot(self, name: str | None = None, rule: str | None = None, first: int = 0) -> alt.ConcatChart:
        """One figure by name: "fractions" (the default), "attacks" (a heat map) or "assumed"."""
        found = {figure.key: figure for figure in self._report(rule, first).figures}
        name = name if name is not None else next(iter(found), "fractions")
        if name not in found:
            raise unknown("figure", name, found)
        return found[name].chart

    def save(
        self, folder: str | Path, *, rule: str | None = None, first: int = 0, title: str | None = None
    ) -> list[Path]:
        """Write the table (`robustness.csv`, `robustness.parquet`) and the page (`robustness.html`) to a folder."""
        from descant.experiment.frames import as_parquet
        from descant.report.place import write_marked

        folder = Path(folder)
        check_files(folder)
        claim_folder(folder)
        table, page = self.table(rule, first), folder / "robustness.html"
        text = self._report(rule, first, title).html()
        write_ours(folder, dict(zip(TABLES, (table.write_csv().encode(), as_parquet(table)), strict=True)))
        write_marked(page, text)
        return [*(folder / name for name in TABLES), page]

    @property
    def _metric(self) -> str:
        return next(iter(self)).history.metric

    def _report(self, rule: str | None = None, first: int = 0, title: str | None = None) -> RobustReport:
        from descant.report.robust import RobustReport

        return RobustReport(self.runs, title, rule, first)

    def __repr__(self) -> str:
        found = outcomes(self.runs)
        methods = list(dict.fromkeys(outcome.place.method for outcome in found))
        lines = [f"Robustness({len(methods)} methods, {len(list(iter(self)))} runs: test {self._metric} (variance)"]
        for outcome in found:
            place, assumed = outcome.place, outcome.place.assumed
            told = "" if assumed is None else f", f = {assumed:g}"
            under = f"{place.attack} {percent(place.fraction)}" if place.fraction else place.attack
            lines.append(f"    {place.method}{told}, {under}: {outcome.text}")
        return "\n".join(lines) + ")"

    def _repr_html_(self) -> str:
        page = escape(self._report().html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 800px; border: 1px solid #ccc"></iframe>'
