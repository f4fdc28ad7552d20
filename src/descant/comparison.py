"""`compare`: methods side by side on the same task and data, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from descant.catalog import Spec
from descant.data import FederatedData
from descant.engine import Record
from descant.errors import SettingError, unknown
from descant.experiment import Callback, Run
from descant.experiment.cells import Cell
from descant.experiment.declaration import Call, declared
from descant.experiment.grid import Grid, comparison
from descant.experiment.harm import worse_than_alone
from descant.experiment.history import SUCCESS
from descant.experiment.namesakes import by_edition, rows_of
from descant.experiment.objects import Problem, grid_of
from descant.experiment.ondata import data_names, data_of
from descant.experiment.progress import Progress
from descant.experiment.table import of_fewer, rows, with_spread
from descant.methods import Method
from descant.task import Task

if TYPE_CHECKING:  # tables and charts are imported where they are used
    import altair as alt
    import polars as pl

    from descant.report import Experiment, Report

_MOST = 12  # methods that a short text names


def compare(
    task: Task | Callable[[int], Task] | str | Path,
    data: FederatedData | Callable[[int], FederatedData] | None = None,
    methods: Mapping[str, Method | Spec] | Sequence[Method | Spec] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    progress: bool | Callable[[Record], None] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    **settings: Any,
) -> Comparison:
    """Run several methods, each with several seeds, on the same task and data.

    With a folder `out` it is what `descant compare` does: cells that are finished there are read and not run again,
    one that was interrupted is gone on with, and several processes may share the work.

    Args:
        task: what the clients learn, or a function of the seed that makes it: then every seed draws a model of its
            own to start from. Or the path of a settings file, with data, model, methods and seeds; further settings
            then override those of the file.
        data: who holds which examples, or a function of the seed that makes them: then every seed deals them anew.
        methods: a mapping from labels to methods, or a list, which is labelled by name; by object, name or spec.
        seeds: a list of seeds, or how many: 3 are 0, 1 and 2. By default one.
        out: a folder to leave the runs in, one folder each.
        progress: True shows bars; a function is called with every record as it is made.
        callbacks: what looks on at every run, one after the other.
        settings: any other setting of `simulate` but `seed` and `label`, the same for all methods.
    """
    asked = Asked.of(seeds, out, progress, callbacks, settings)
    if isinstance(task, str | Path):
        from descant.experiment.settings import read_settings

        refuse_both(task, data=data, methods=methods)
        grid = comparison(read_settings(Path(task)) | asked.values, asked.folder, asked.callbacks)
    else:
        if data is None:
            raise SettingError("data: a comparison needs it, as in descant.compare(task, data, methods, rounds=50)")
        grid = grid_of(Problem(task, data), asked.values | {"methods": methods}, asked.folder, asked.callbacks)
    return Comparison(run for _, run in asked.carried_out(grid))


@dataclass(frozen=True)
class Asked:
    """What a call asks for, beside a task, data and methods: settings, where runs are left, and who looks on."""

    values: dict[str, Any]
    folder: Path | None
    progress: bool | Callable[[Record], None] | None
    callbacks: tuple[Callback, ...]

    @classmethod
    def of(cls, seeds: Any, out: Any, progress: Any, callbacks: Any, settings: Mapping[str, Any]) -> Self:
        call = declared(Call)
        shown = call["progress"].allowed.check("progress", progress)
        looking_on = call["callbacks"].allowed.check("callbacks", callbacks)
        folder = Path(p) if (p := call["out"].allowed.check("out", out)) is not None else None
        drawn = {} if seeds is None else {"seeds": list(seeds) if isinstance(seeds, range) else seeds}
        if "overwrite" in settings:
            raise SettingError("overwrite: runs of a comparison or table in `out` are read; choose another folder")
        return cls({**settings, **drawn}, folder, shown, looking_on)

    def carried_out(self, grid: Grid) -> Iterator[tuple[Cell, Run]]:
        """The cells of a grid with their runs, while progress is shown."""
        progress = self.progress
        if progress is True:
            with Progress() as bars:
                yield from bars.run(grid)
        else:
            yield from grid.run((lambda _, record: progress(record)) if callable(progress) else None)


def refuse_both(file: str | Path, **given: Any) -> None:
    """Refuse what a settings file says, and the call too."""
    for name, value in given.items():
        if value is not None:
            raise SettingError(f"{name}: the settings file {file} has them already; leave one of the two out")


class Comparison:
    """Runs side by side: `runs` has those of every label, one a seed. A notebook shows the table and the verdict.

    Figures are of the models that clients deploy, at the round chosen on validation data (the last where there are
    none). `first` chooses among rounds from that one on. Where runs are on several data, labels say which, and
    verdicts and differences are of those on the same.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs: dict[str, list[Run]] = {}
        self._data: dict[str, str] = {}  # by label: what data its runs are on
        runs = list(runs)
        names = data_names(runs)
        named = {name: by_edition([run for run in runs if data_of(run) == data]) for data, name in names.items()}
        several = len(named) > 1 or any(len(editions) > 1 for editions in named.values())
        for name, editions in named.items():
            for n, some in enumerate(editions, 1):
                data = f"{name} ({n})" if len(editions) > 1 else name
                for label, seeds in rows_of(some).items():
                    full = f"{label}, on {data}" if several else label
                    self.runs[full], self._data[full] = seeds, data
        if not self.runs:
            raise SettingError("a comparison needs at least one run")

    def __iter__(self) -> Iterator[Run]:
        """Every run, one label after the other."""
        return (run for runs in self.runs.values() for run in runs)

    def table(self, first: int = 0) -> pl.DataFrame:
        """One row a label: means over seeds, and the standard deviation over them (`..._spread`; 0 for one)."""
        import polars as pl

        experiment = self._experiment(first)
        model, rule, metric = experiment.model, experiment.rule, experiment.history.metric
        named = {
            f"test_{metric}": f"{model}.test_{metric}.mean@{rule}",
            "worst_10": f"{model}.test_{metric}.worst_10@{rule}",
            "std": f"{model}.test_{metric}.std@{rule}",
            "test_loss": f"{model}.test_loss.mean@{rule}",
        }
        if any(SUCCESS in column for run in self for column in run.history.columns(model)):
            named[SUCCESS] = f"{model}.test_{SUCCESS}.mean@{rule}"
        spent = ("bytes_up", "bytes_down", "gradients_per_client", "examples_per_client", "seconds")
        harmed = worse_than_alone(self.runs, rule, first)
        lines = []
        for row in rows([(label, run) for label, runs in self.runs.items() for run in runs], first):
            line: dict[str, Any] = {"method": row.label, "seeds": row.seeds, "collapsed": row.collapsed}
            line["round"] = row.mean.get(f"{model}.round@{rule}")
            for column, name in named.items():
                line |= {column: row.mean.get(name), f"{column}_spread": row.spread.get(name)}
            shares = harmed.get(row.label)
            line["worse_than_alone"] = sum(shares) / len(shares) if shares else None
            lines.append(line | {name: row.mean[name] for name in spent})
        return pl.DataFrame(lines, infer_schema_length=None)

    def differences(self, against: str | None = None, first: int = 0) -> pl.DataFrame:
        """How much better every method is than `against` (by default the best), seed by seed.

        `difference` is the mean over the seeds that both have, positive is better, `low` and `high` are its 95 %
        interval (Student's t), `wins` counts the seeds, and `sure` says whether the interval leaves out 0. There is
        no interval with one seed, or where the seeds gave the same results.
        """
        import polars as pl

        from descant.report.verdict import against_one

        if against is not None and against not in self.runs:
            raise unknown("method of this comparison", against, self.runs)
        lines = [line for experiment in self._experiments(first) for line in against_one(experiment, against)]
        kinds = {"method": pl.String, "against": pl.String, "difference": pl.Float64, "low": pl.Float64}
        kinds |= {"high": pl.Float64, "wins": pl.Int64, "seeds": pl.Int64, "sure": pl.Boolean}
        return pl.DataFrame(lines, schema=kinds)

    def budget(
        self,
        budgets: int | str | Sequence[int | str] | None = None,
        targets: float | Sequence[float] | None = None,
        *,
        papers: bool = False,
        rule: Literal["chosen_on_valid", "last", "best_on_test"] | None = None,
        first: int = 0,
    ) -> pl.DataFrame:
        """Accuracy per byte: a row a method and budget with the test metric, one a method and target with the cost.

        `budgets` are bytes of all clients, up and down ("300 kB" is 300,000); within one, the round is chosen by
        `rule`, by default on validation data. A target is reached in the first evaluated round whose mean test
        metric is as good. Round 0, the untrained model, costs nothing and counts for neither. `value` and `spread`
        are mean and standard deviation over the seeds that have a figure, which `reached` counts.
        `examples_per_client` are example gradients until the row's `round`, and `equal_compute` is false where
        those of the methods differ for the same goal. With `papers` the count is that of lp-proj's authors: in
        numbers of 32 bits, and what is reached in t rounds costs t + 1, so that round 0 counts too.
        """
        from descant.experiment.budget import Goals, budget_frame

        return budget_frame(self.runs, Goals.of(budgets, targets, papers), rule, first)

    def verdict(self, first: int = 0) -> str:
        """One sentence or two: the best, the gap to the next, and what the seeds say of it."""
        from descant.report.verdict import verdict

        found = {experiment.title: verdict(experiment) for experiment in self._experiments(first)}
        if len(found) == 1:
            return next(iter(found.values()))
        return " ".join(f"On {title}: {said}" for title, said in found.items() if said)

    def report(self, path: str | Path | None = None, *, title: str | None = None, first: int = 0) -> Report:
        """Charts and tables as a page, which a notebook shows; with a `path` it is written there too."""
        from descant.report.making import report

        return report(self, path, title=title, first=first)

    def plot(self, name: str | None = None) -> alt.ConcatChart:
        """One chart of the report by name: "accuracy", "loss", "bytes", ...; a wrong name lists them."""
        return self.report().plot(name)

    def _experiment(self, first: int = 0) -> Experiment:
        from descant.report import Entry, Experiment

        entries = tuple(Entry(label, tuple(runs)) for label, runs in self.runs.items())
        return Experiment(" and ".join(dict.fromkeys(self._data.values())), entries, "comparison", first)

    def _experiments(self, first: int = 0) -> list[Experiment]:
        """What may be compared: the entries on the same data, an experiment each."""
        every = self._experiment(first)
        return [
            replace(every, title=name, entries=tuple(e for e in every.entries if self._data[e.label] == name))
            for name in dict.fromkeys(self._data.values())
        ]

    def __repr__(self) -> str:
        experiment = self._experiment()
        name = f"{experiment.model}.test_{experiment.history.metric}.mean@{experiment.rule}"
        found = rows([(label, run) for label, runs in self.runs.items() for run in runs])
        seeds = max(row.seeds for row in found)
        many = f"{len(found)} method{'s' if len(found) > 1 else ''}, {seeds} seed{'s' if seeds > 1 else ''}"
        lines = [f"Comparison({many}, on {experiment.title}: test {experiment.history.metric}"]
        width = max(len(row.label) for row in found)
        for row in found[:_MOST]:
            figure = with_spread(row.mean.get(name, float("nan")), row.spread.get(name) if row.seeds > 1 else None)
            lost = f", {row.collapsed} of {row.seeds} collapsed" if row.collapsed else ""
            fewer = f", {few}" if (few := of_fewer(row.seeds, seeds)) else ""
            lines.append(f"    {row.label:<{width}}  {figure}{fewer}{lost}")
        if len(found) > _MOST:
            lines.append(f"    and {len(found) - _MOST} more: see table()")
        return "\n".join(lines) + ")"

    def _repr_html_(self) -> str:
        from descant.report.tables import notices, overview, summary_rows

        experiment = self._experiment()
        found = summary_rows(experiment)
        table = overview(experiment, found, experiment.rule)
        head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>" for row in table.rows
        )
        said = [text for text in (self.verdict(), *notices(experiment, found)) if text]
        texts = "".join(f"<p>{escape(text)}</p>" for text in said)
        grid = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"{texts}{grid}<p><small>{escape(table.caption)}</small></p>"
