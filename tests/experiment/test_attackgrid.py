"""The grid of a table of robustness: which runs there are, which are shared, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from descant.aggregators import Chain, Krum, Mean, NearestNeighborMixing, TrimmedMean
from descant.attacks import RandomLabels, RandomScale, SameValue, SignFlip
from descant.engine import Record
from descant.errors import SettingError
from descant.experiment.attackgrid import CLEAN, AttackGrid, Place, attack_grid
from descant.experiment.cells import Cell, FromFile
from descant.experiment.grid import comparison

DATA = {"name": "synthetic", "clients": 5, "samples": 20, "dim": 3, "classes": 3}
FLIP = {"name": "sign-flip", "tau": 2.0}


def values(**changes: Any) -> dict[str, Any]:
    given = {
        "data": DATA,
        "methods": {"together": {"name": "fedavg", "steps": 1}, "alone": {"name": "local", "steps": 1}},
        "attacks": {"flip": FLIP, "poison": ["random-labels", "random-scale"]},
        "fractions": [0.4, 0, 0.2],
        "seeds": [3, 4],
        "rounds": 1,
    }
    return {name: value for name, value in (given | changes).items() if value is not None}


def settings(grid: AttackGrid, place: Place, seed: int = 0) -> Any:
    cell = grid.places[place][seed]
    assert isinstance(cell, FromFile)
    return cell.settings


def test_a_place_is_every_method_under_every_attack_by_every_fraction_with_every_seed() -> None:
    grid = attack_grid(values())
    attacked = [(attack, fraction) for attack in ("flip", "poison") for fraction in (0.2, 0.4)]
    expected = [Place(m, a, f) for m in ("together", "alone") for a, f in [(CLEAN, 0.0), *attacked]]
    assert list(grid.places) == expected
    assert all([cell.seed for cell in cells] == [3, 4] for cells in grid.places.values())
    flipped = settings(grid, Place("together", "flip", 0.4))
    assert flipped.attacks == (SignFlip(tau=2.0),) and flipped.malicious == 0.4
    assert settings(grid, Place("together", "poison", 0.2)).attacks == (RandomLabels(), RandomScale())
    clean = settings(grid, Place("together"))
    assert clean.attacks == () and clean.malicious is None


def test_what_nobody_can_attack_and_what_nobody_attacks_is_run_once() -> None:
    grid = attack_grid(values())
    # together: clean, 2 attacks by 2 fractions; alone, where no message can be forged: clean, 2 fractions
    assert len(grid.grid.cells) == 2 * (1 + 4) + 2 * (1 + 2)
    for fraction in (0.2, 0.4):
        assert grid.places[Place("alone", "flip", fraction)] == grid.places[Place("alone", "poison", fraction)]
    assert len({cell.key for cell in grid.grid.cells}) == len(grid.grid.cells)
    assert [cell.label for cell in grid.grid.cells][:3] == [
        "together",
        "together, flip 20 %",
        "together, flip 40 %",
    ]


def test_the_clean_runs_are_those_of_a_comparison() -> None:
    grid = attack_grid(values())
    compared = comparison({k: v for k, v in values().items() if k not in ("attacks", "fractions")})
    clean = [cell.key for place, cells in grid.places.items() if place.attack == CLEAN for cell in cells]
    assert clean == [cell.key for cell in compared.cells]


def test_fractions_without_zero_have_no_clean_run_and_an_attack_may_have_its_own() -> None:
    attacks = {"flip": FLIP, "poison": {"attacks": "lp-proj/poison", "fractions": [0.2]}}
    grid = attack_grid(values(methods=["fedavg"], attacks=attacks, fractions=[0.4], seeds=1))
    assert list(grid.places) == [Place("fedavg", "flip", 0.4), Place("fedavg", "poison", 0.2)]
    found = settings(grid, Place("fedavg", "poison", 0.2))
    assert [attack.name for attack in found.attacks] == ["random-labels", "random-scale"]
    own = {"poison": {"attacks": "lp-proj/poison", "fractions": [0.2]}}
    assert len(attack_grid(values(methods=["fedavg"], attacks=own, fractions=None)).places) == 1


def test_a_list_of_attacks_is_labelled_by_name_and_objects_will_do() -> None:
    grid = attack_grid(values(methods=["fedavg"], attacks=["lp-proj/gaussian", FLIP, SameValue()], fractions=0.2))
    assert [place.attack for place in grid.places] == ["lp-proj/gaussian", "sign-flip", "same-value"]


DEFENDED = {
    "krum": {"name": "fedavg", "run": {"aggregator": "krum"}},
    "mixed": {"name": "fedavg", "run": {"aggregator": ["nnm", {"name": "trimmed-mean", "f": 1}]}},
    "mean": {"name": "fedavg"},
}


def test_defences_can_be_told_the_truth() -> None:
    grid = attack_grid(values(methods=DEFENDED, assumed=True, seeds=1))
    for place in grid.places:
        mixing = Chain(steps=(NearestNeighborMixing(f=place.fraction), TrimmedMean(f=place.fraction)))
        told = {"krum": Krum(f=place.fraction), "mixed": mixing, "mean": Mean()}[place.method]
        assert settings(grid, place).aggregator == told and place.assumed is None
    own = attack_grid(values(methods=DEFENDED, seeds=1))
    assert settings(own, Place("krum", "flip", 0.4)).aggregator == Krum()


def test_what_defences_assume_is_a_grid_of_its_own() -> None:
    grid = attack_grid(values(methods=DEFENDED, assumed=[0.2, 1], seeds=1))
    beside = [place for place in grid.places if place.assumed is not None]
    attacked = [(CLEAN, 0.0)] + [(attack, fraction) for attack in ("flip", "poison") for fraction in (0.2, 0.4)]
    assert beside == [Place(m, a, t, f) for m in ("krum", "mixed") for a, t in attacked for f in (0.2, 1)]
    assert settings(grid, Place("krum", "flip", 0.4, 1)).aggregator == Krum(f=1)
    # what Krum assumes anyway is not run twice
    assert grid.places[Place("krum", "flip", 0.4)] == grid.places[Place("krum", "flip", 0.4, 0.2)]
    assert len(grid.grid.cells) == 5 * (2 + 3 + 1)


def test_finished_runs_are_not_run_again_and_a_new_fraction_adds_its_own(tmp_path: Path) -> None:
    ran: list[str] = []

    def note(cell: Cell, record: Record) -> None:
        if cell.key not in ran:
            ran.append(cell.key)

    small = values(seeds=[3], fractions=[0, 0.2])
    first = attack_grid(small, tmp_path)
    runs = first.placed(first.grid.run(note))
    assert len(ran) == len(first.grid.cells) == 3 + 2
    again = attack_grid(small, tmp_path)
    assert again.placed(again.grid.run(note)).keys() == runs.keys() and len(ran) == 5, "nothing was run again"
    more = attack_grid(values(seeds=[3]), tmp_path)
    list(more.grid.run(note))
    assert len(ran) == 5 + 3 and all("40" in key for key in ran[5:])
    assert runs[Place("alone", "flip", 0.2)] == runs[Place("alone", "poison", 0.2)]
    assert runs[Place("together")][0].summary()["malicious"] == 0
    assert runs[Place("together", "flip", 0.2)][0].summary()["malicious"] == 1


BAD: list[tuple[dict[str, Any], str]] = [
    ({"methods": None}, "methods: a table of robustness needs them"),
    ({"methods": []}, "methods: the list is empty"),
    ({"methods": ["fedavgg"]}, r"methods\.fedavgg: there is no method called 'fedavgg'"),
    ({"attacks": None}, "attacks: a table of robustness needs them"),
    ({"attacks": {}}, "attacks: there is none"),
    ({"attacks": 3}, "attacks: a table of robustness needs them"),
    ({"attacks": [3]}, "attacks: 3 has no name"),
    ({"attacks": [["sign-flip", "random-labels"]]}, "has no name"),
    ({"attacks": ["sign-flip", "sign-flip"]}, "attacks: 'sign-flip' stands twice"),
    ({"attacks": {"mine": "sign-flop"}}, r"attacks\.mine: there is no attack called 'sign-flop'"),
    ({"attacks": {"mine": {"name": "sign-flip", "tau": -1}}}, r"attacks\.mine\.tau = -1"),
    ({"attacks": {"mine": ["sign-flip", {"name": "alie", "y": 1}]}}, r"attacks\.mine\[1\]\.y"),
    ({"attacks": {"mine": []}}, r"attacks\.mine: it says not what attackers do"),
    ({"attacks": {"mine": {"attacks": "alie", "share": 1}}}, r"attacks\.mine\.share"),
    ({"attacks": {"mine": {"attacks": "alie", "fractions": [2]}}}, r"attacks\.mine\.fractions\[0\] = 2"),
    ({"attacks": {"clean": "alie"}}, "the label 'clean' cannot be used"),
    ({"fractions": None}, "fractions: a table of robustness needs them"),
    ({"fractions": []}, r"fractions = \[\]"),
    ({"fractions": "half"}, "fractions = 'half'"),
    ({"fractions": [0.2, 1.0]}, r"fractions\[1\] = 1\.0: .* somebody has to be benign"),
    ({"fractions": [float("nan")]}, r"fractions\[0\] = nan"),
    ({"fractions": [-0.1]}, r"fractions\[0\] = -0\.1"),
    ({"fractions": [True]}, r"fractions\[0\] = True"),
    ({"fractions": [0.2, 0.2]}, "a fraction stands twice"),
    ({"fractions": [0.2, 0.2000001]}, "a fraction stands twice, as tables round them"),
    ({"fractoins": [0.2]}, r"no setting called 'fractoins'\. Did you mean 'fractions'\?"),
    ({"asumed": True}, r"no setting called 'asumed'\. Did you mean 'assumed'\? .*fractions.*methods.*seeds"),
    ({"targets": [0.5]}, "'targets' is a setting of a table of bytes"),
    ({"attacks": {"none": "alie"}}, "the label 'none' cannot be used"),
    ({"malicious": 0.2}, "'malicious' is a setting of a single run"),
    ({"seed": 1}, "'seed' is a setting of a single run"),
    ({"methods": {"a": {"name": "fedavg", "run": {"malicious": 1}}}}, r"methods\.a\.run\.malicious"),
    ({"methods": {"a": {"name": "fedavg", "run": {"attacks": "alie"}}}}, r"methods\.a\.run\.attacks"),
    ({"assumed": True}, "assumed: no method here has an aggregator that assumes"),
    ({"assumed": [1.0], "methods": DEFENDED}, "assumed = 1.0"),
    ({"assumed": [-1], "methods": DEFENDED}, "assumed = -1"),
    ({"assumed": ["many"], "methods": DEFENDED}, "assumed = 'many'"),
    ({"assumed": [True, True], "methods": DEFENDED}, "assumed = .*'true' stands twice"),
    (
        {"assumed": [0.1, 0.5], "methods": DEFENDED},
        r"assumed = 0\.5: .* below 0\.5, since 'krum' of 'krum'",
    ),
    ({"assumed": [1, 1], "methods": DEFENDED}, "a number stands twice"),
    ({"assumed": [0.1, 0.10000001], "methods": DEFENDED}, "a number stands twice"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_meant_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        attack_grid(values(**changes))


@pytest.fixture(autouse=True)
def _no_training_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A grid is made without reading data: only the test of finished runs trains."""
    if "finished" not in request.node.name:
        monkeypatch.setattr("descant.experiment.settings.load_data", lambda spec: pytest.fail("data were read"))
    yield


def test_a_backdoor_is_asked_of_what_nobody_can_attack_whatever_comes_first() -> None:
    """Runs of a method that sends nothing are shared among attacks; a backdoor's have a figure of their own."""
    for attacks in (["sign-flip", "backdoor"], ["backdoor", "sign-flip"]):
        grid = attack_grid(values(attacks=attacks, fractions=[0.4]))
        for label in attacks:
            (attack,) = settings(grid, Place("alone", label, 0.4)).attacks
            assert attack.name == label


def test_a_true_share_beyond_what_a_defence_survives_is_the_most_it_survives() -> None:
    methods = {"trimmed": {"name": "fedavg", "steps": 1, "run": {"aggregator": "trimmed-mean"}}}
    grid = attack_grid(values(methods=methods, fractions=[0.4, 0.8], assumed=True))
    assert settings(grid, Place("trimmed", "flip", 0.4)).aggregator == TrimmedMean(f=0.4)
    assert settings(grid, Place("trimmed", "flip", 0.8)).aggregator == TrimmedMean(f=None)
