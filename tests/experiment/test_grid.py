"""Comparisons: cells, what is run again and what is not, tables."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.engine import Record
from descant.engine.simulation import Simulation
from descant.errors import SettingError
from descant.experiment import Run
from descant.experiment.cells import Cell, FromFile
from descant.experiment.grid import Grid, comparison
from descant.experiment.table import compute_note, count, rows


def from_files(grid: Grid) -> list[FromFile]:
    """The cells of a grid that settings made, which are all of them here."""
    return [cell for cell in grid.cells if isinstance(cell, FromFile)]


def values(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"name": "synthetic", "clients": 6, "samples": 30},
        "methods": {"alone": {"name": "local", "steps": 2}, "together": {"name": "fedavg", "steps": 2}},
        "seeds": [3, 4],
        "rounds": 2,
    } | changes


def labelled(results: Iterable[tuple[Cell, Run]]) -> list[tuple[str, Run]]:
    return [(cell.label, run) for cell, run in results]


def test_a_grid_is_every_method_with_every_seed() -> None:
    grid = comparison(values())
    assert [(c.label, c.seed) for c in from_files(grid)] == [
        ("alone", 3),
        ("alone", 4),
        ("together", 3),
        ("together", 4),
    ]
    assert len({c.key for c in grid.cells}) == 4
    assert [c.seed for c in comparison(values(seeds=2)).cells] == [0, 1, 0, 1]


def test_a_list_of_methods_is_labelled_by_name_and_needs_labels_where_one_stands_twice() -> None:
    assert [c.label for c in comparison(values(methods=["local", {"name": "ditto"}], seeds=1)).cells] == [
        "local",
        "ditto",
    ]
    with pytest.raises(SettingError, match="'local' stands twice"):
        comparison(values(methods=["local", {"name": "local", "steps": 2}]))


def test_finished_cells_are_read_and_changed_ones_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def note(cell: Cell, record: Record) -> None:
        if cell.key not in ran:
            ran.append(cell.key)

    before = rows(labelled(comparison(values(), tmp_path).run(note)))
    assert len(ran) == 4
    assert rows(labelled(comparison(values(), tmp_path).run(note))) == before
    assert len(ran) == 4, "nothing was run again"
    list(comparison(values(rounds=3), tmp_path).run(note))
    assert len(ran) == 8, "with another setting every cell is another"


def simulations() -> list[Simulation]:
    """All that Python holds."""
    return [it for it in gc.get_objects() if type(it) is Simulation]


def test_a_grid_that_keeps_its_runs_holds_no_federation(tmp_path: Path) -> None:
    """A grid of many runs would fill the memory with the state of clients that have ended."""
    others = set(map(id, simulations()))  # which other tests keep
    made: list[weakref.ref[Simulation]] = []

    def note(cell: Cell, record: Record) -> None:
        made.extend(weakref.ref(it) for it in simulations() if id(it) not in others)

    kept = list(comparison(values(), tmp_path).run(note))
    assert made and len(kept) == 4
    assert all(it() is None for it in made)


def test_a_row_is_the_mean_and_the_sample_deviation_over_seeds() -> None:
    results = list(comparison(values()).run())
    found = {row.label: row for row in rows(labelled(results))}
    figure = "personal.test_loss.mean@last"
    each = [run.summary()[figure] for cell, run in results if cell.label == "together"]
    assert found["together"].seeds == 2
    assert found["together"].mean[figure] == pytest.approx(np.mean(each))
    assert found["together"].spread[figure] == pytest.approx(np.std(each, ddof=1))


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0"), (0.024, "0.024"), (2.46, "2.5"), (6.0, "6"), (9.99, "10"), (1234.4, "1,234")]
)
def test_few_gradients_a_client_are_not_none(value: float, told: str) -> None:
    assert count(value) == told


def test_unequal_compute_is_noticed() -> None:
    methods = {"one": {"name": "local", "steps": 1}, "two": {"name": "local", "steps": 2}}
    said = compute_note(rows(labelled(comparison(values(methods=methods)).run())))
    assert re.fullmatch(r"Not at equal compute: example gradients a client are \d+ \(one\); \d+ \(two\)\.", said)
    assert compute_note(rows(labelled(comparison(values()).run()))) == ""


def test_a_method_may_have_settings_of_the_run_for_itself() -> None:
    methods = {"all": {"name": "local", "run": {"trainers": "everyone"}}, "some": "local"}
    grid = comparison(values(methods=methods, seeds=1, cohort=2))
    assert [c.settings.trainers for c in from_files(grid)] == ["everyone", "cohort"]


def test_data_can_be_drawn_anew_for_every_seed() -> None:
    fixed, fresh = comparison(values()), comparison(values(data={"name": "synthetic", "clients": 3, "seed": "run"}))
    same = [c.settings.federated_data().train.inputs for c in from_files(fixed)[:2]]
    drawn = [c.settings.federated_data().train.inputs for c in from_files(fresh)[:2]]
    assert same[0].equal(same[1]) and not drawn[0].equal(drawn[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": None}, "needs 'methods'"),
        ({"methods": {}}, "empty"),
        ({"seeds": []}, "seeds = "),
        ({"method": "local"}, "'methods'"),
        ({"seed": 1}, "'seeds'"),
        ({"methods": {"a": {"name": "local", "run": 3}}}, "methods.a.run"),
    ],
)
def test_a_bad_comparison_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        comparison(values(**changes))
