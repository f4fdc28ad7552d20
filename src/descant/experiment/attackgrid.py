"""The grid of a table of robustness: every method under every attack, by every fraction of the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Any

from descant.aggregators import Aggregator
from descant.attacks import Attack
from descant.errors import SettingError, shown
from descant.experiment.allowed import is_whole, refusal
from descant.experiment.assumed import Assumed, assumes, guessed, refuse_cut, told
from descant.experiment.callback import Callback
from descant.experiment.cells import Cell, Listening
from descant.experiment.declaration import Settings, declared
from descant.experiment.declaring import Declaration
from descant.experiment.grid import COMPARED, Grid, file_cell, refuse_same_folders, refuse_unknown, rows_of
from descant.experiment.parts import InARow, PartOf
from descant.experiment.ready import Ready
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings

CLEAN = "clean"  # the runs in which nobody attacks
WORST = "worst"  # what a heat map calls the column of every method's worst attack
NONE = "none"  # the worst attack on a method that sends nothing

Values = Mapping[str, Any]
Make = Callable[[dict[str, Any], dict[str, str], list[Any]], Cell]


@dataclass(frozen=True)
class Place:
    """Where runs stand, one a seed: a method under an attack by a share of the clients; nobody attacks in `CLEAN`.

    `assumed` is what the method's defence takes the number or the share of attackers to be, where these are held
    against the true ones; None in the table itself.
    """

    method: str
    attack: str = CLEAN
    fraction: float = 0.0
    assumed: int | float | None = None


@dataclass(frozen=True)
class AttackGrid:
    """Cells to run, and the places of the table that each of them fills: a run that several share is run once."""

    grid: Grid
    places: dict[Place, tuple[Cell, ...]]  # a cell a seed

    def placed(self, results: Iterable[tuple[Cell, Run]]) -> dict[Place, list[Run]]:
        """The runs of every place; a damaged cell is in none."""
        runs = {id(cell): run for cell, run in results}
        found = {at: [runs[id(c)] for c in cells if id(c) in runs] for at, cells in self.places.items()}
        return {place: there for place, there in found.items() if there}


@dataclass(frozen=True)
class _Attacking:
    """An attack of the table: its label, what the setting `attacks` takes, and by which fractions."""

    label: str
    value: Any
    fractions: tuple[float, ...]
    at: str = "fractions"  # where the user wrote them


def attack_grid(
    values: Values,
    folder: Path | None = None,
    callbacks: tuple[Callback, ...] = (),
    make: Make = file_cell,
    runs: type[Declaration] = RunSettings,
) -> AttackGrid:
    """The grid of a table of robustness: the settings of a comparison, with `attacks` and `fractions`.

    `attacks` is a mapping from labels to what the setting `attacks` of a run takes, or to that with `fractions` of
    its own; or a list, labelled by name. `fractions` are shares of the clients; 0 is run once for all attacks. With
    `assumed: true` defences know the true share, and a list is what they assume in a grid of its own.
    """
    stops = Listening(callbacks=callbacks).identity()
    refuse_unknown(values, runs, (*COMPARED, "attacks", "fractions", "assumed"), taken=("malicious",))
    cells: dict[str, Cell] = {}
    places: dict[Place, list[Cell]] = {}
    guesses: dict[int, Place] = {}  # cells whose defence assumes what the user wrote in `assumed`
    for place, settings, at in rows_under_attack(values):
        cell = make(settings, at, stops)
        same = dumps([place.method, cell.identity()], sort_keys=True)
        cell = cells.setdefault(same, cell)
        places.setdefault(place, []).append(cell)
        if place.assumed is not None:
            guesses[id(cell)] = place
    found = list(cells.values())
    if folder is not None:
        refuse_same_folders(found)

    def refuse(cell: Cell, run: Ready) -> None:
        _refuse_all_malicious(cell, run)
        if (place := guesses.get(id(cell))) is not None and place.assumed is not None:
            refuse_cut(place.assumed, place.method, run)

    grid = Grid(tuple(found), folder, callbacks, refuse)
    return AttackGrid(grid, {place: tuple(c) for place, c in places.items()})


def _refuse_all_malicious(cell: Cell, run: Ready) -> None:
    """Refuse a fraction that is everyone, once it is known how many clients there are."""
    clients = len(run.parties.data)
    if len(run.plan.malicious) == clients:
        said = f"{clients} of {clients} clients: somebody has to be benign, and figures are theirs"
        raise refusal(cell.at["malicious"], cell.settings.malicious, f"a smaller fraction; it is {said}")


def rows_under_attack(values: Values) -> Iterator[tuple[Place, dict[str, Any], dict[str, str]]]:
    """The settings of every run, with its place and where the user wrote them."""
    common = dict(values)
    if "malicious" in common:
        raise SettingError("'malicious' is a setting of a single run: a table of robustness has 'fractions'")
    if common.get("methods") is None:
        raise SettingError("methods: a table of robustness needs them: a list, or a mapping from labels to methods")
    given = common.pop("fractions", None)
    fractions = () if given is None else _fractions("fractions", given)
    attacks = _attacks(common.pop("attacks", None), fractions)
    assumed = Assumed.of(common.pop("assumed", None))
    heeded = False
    for settings, at in rows_of(common):
        for taken in ("attacks", "malicious"):
            if taken in at:
                raise SettingError(f"{at[taken]}: '{taken}' is the table's own, and the same for all methods")
        settings["method"] = method = PartOf("methods").check(at["method"], settings["method"])
        where = at.get("aggregator", "aggregator")
        defence: Aggregator = InARow("aggregators").check(where, settings.get("aggregator", "mean"))
        guesses = assumes(defence)
        heeded = heeded or guesses
        for attack, fraction in _under(attacks, fractions):
            does = attack
            if method.mute and attack and not _probes(attack):  # a backdoor is asked of these models, too
                does = next(a for a in attacks if fraction in a.fractions and not _probes(a))
            yield from _cells(settings, at, defence if guesses else None, assumed, attack, does, fraction)
    if (assumed.truth or assumed.others) and not heeded:
        raise SettingError(
            "assumed: no method here has an aggregator that assumes a number of attackers (`f`), as krum does"
        )


def _cells(
    settings: dict[str, Any],
    at: dict[str, str],
    defence: Aggregator | None,
    assumed: Assumed,
    attack: _Attacking | None,
    does: _Attacking | None,
    fraction: float,
) -> Iterator[tuple[Place, dict[str, Any], dict[str, str]]]:
    """The runs of a method and a seed under an attack, where attackers do what `does` says (None: nobody attacks).

    What attackers do is another attack than the one of the place where no message can be forged: those runs are
    the same, and are run once. There is a run for each number of attackers that the `defence` assumes, if it does.
    """
    method = settings["label"]
    place = Place(method) if attack is None else Place(method, attack.label, fraction)
    if does is not None:
        settings = settings | {"attacks": does.value, "malicious": fraction}
        at = at | {"attacks": f"attacks.{does.label}", "malicious": does.at}
    under = "" if does is None else f", {does.label} {percent(fraction)}"
    if defence is None:
        yield place, settings | {"label": f"{method}{under}"}, at
        return
    own = told(defence, fraction) if assumed.truth else defence
    yield place, settings | {"label": f"{method}{under}", "aggregator": own}, at
    for f in assumed.others:
        changed = {"label": f"{method}{under}, f = {f:g}", "aggregator": guessed(defence, f, method)}
        yield replace(place, assumed=f), settings | changed, at


def _probes(attack: _Attacking) -> bool:
    """Whether it is a backdoor, so that its runs have a figure that others have not."""
    given = declared(Settings)["attacks"].allowed.check(f"attacks.{attack.label}", attack.value)
    return any(type(one).probe is not Attack.probe for one in given)


def percent(fraction: float) -> str:
    """A fraction as tables show it."""
    return f"{100 * fraction:g} %"


def _under(attacks: Sequence[_Attacking], fractions: Sequence[float]) -> Iterator[tuple[_Attacking | None, float]]:
    """Every attack with its fractions. Without attackers there is one run for all of them."""
    if 0 in fractions or any(0 in attack.fractions for attack in attacks):
        yield None, 0.0
    yield from ((attack, fraction) for attack in attacks for fraction in attack.fractions if fraction)


def _attacks(given: Any, fractions: tuple[float, ...]) -> list[_Attacking]:
    if isinstance(given, str | Attack):
        given = [given]
    if isinstance(given, Mapping):
        pairs = [(str(label), label if value is None else value) for label, value in given.items()]
    elif isinstance(given, list | tuple):
        pairs = [(_name(value), value) for value in given]
    else:
        raise SettingError(
            "attacks: a table of robustness needs them: a list, or a mapping from labels to attacks of a run"
        )
    if not pairs:
        raise SettingError("attacks: there is none; without any it is a comparison: use `descant compare`")
    found: dict[str, _Attacking] = {}
    for label, value in pairs:
        told = {CLEAN: "the runs without attackers are called so", WORST: "a column of the tables is called so"}
        told |= {NONE: "the worst attack on a method that no attack reaches is called so"}
        if not label.strip() or label in told:
            remedy = told.get(label, "give it a label")
            raise SettingError(f"attacks: the label '{label}' cannot be used: {remedy}")
        if label in found:
            raise SettingError(f"attacks: '{label}' stands twice; give labels, as in {{my label: {label}}}")
        own, at = fractions, "fractions"
        if isinstance(value, Mapping) and "attacks" in value:
            for unknown in value.keys() - {"attacks", "fractions"}:
                raise SettingError(f"attacks.{label}.{unknown}: beside 'attacks' there may be 'fractions' alone")
            if "fractions" in value:
                at = f"attacks.{label}.fractions"
                own = _fractions(at, value["fractions"])
            value = value["attacks"]
        if not own:
            raise SettingError(
                "fractions: a table of robustness needs them: shares of the clients that attack, as in [0, 0.2]"
            )
        if value is None or (isinstance(value, list | tuple) and not value):
            raise SettingError(f"attacks.{label}: it says not what attackers do")
        found[label] = _Attacking(label, value, own, at)
    return list(found.values())


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return str(value["name"])
    if isinstance(value, Attack):
        return value.name
    raise SettingError(f"attacks: {shown(value)} has no name: give a mapping from labels to attacks")


def _fractions(name: str, given: Any) -> tuple[float, ...]:
    """Shares of the clients in ascending order; a single one may stand alone."""
    if is_whole(given) or isinstance(given, float):
        given = [given]
    if not isinstance(given, list | tuple) or not given:
        raise refusal(name, given, "a list of shares of the clients, from 0 (nobody attacks) to below 1")
    for i, one in enumerate(given):
        if not (is_whole(one) or isinstance(one, float)) or not 0 <= one < 1:
            raise refusal(
                f"{name}[{i}]", one, "a share of the clients from 0 to below 1: somebody has to be benign"
            )
    checked = tuple(float(one) for one in given)
    if len(set(map(percent, checked))) < len(checked):
        raise SettingError(f"{name} = {shown(list(given))}: a fraction stands twice, as tables round them")
    return tuple(sorted(checked))
