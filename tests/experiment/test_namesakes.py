"""Which runs of a name are the seeds of one row, and which followed from something else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from descant import FederatedData, simulate
from descant.experiment import Run
from descant.experiment.namesakes import by_edition

DATA = FederatedData.from_arrays([(torch.eye(3).repeat(4, 1), torch.arange(12) % 2) for _ in range(3)])
FIXED = {"data": {"name": "folder", "folder": "clients", "seed": 0}}  # a settings file's
ANEW = {"data": {"name": "folder", "folder": "clients", "seed": "run"}}


@pytest.fixture(scope="module")
def one() -> Run:
    return simulate(nn.Linear(3, 2), DATA, "local", rounds=1, mode="vmap", label="one")


def of(
    run: Run, held: str | None = "A", seed: int = 0, prints: dict[str, str] | None = None, **changes: Any
) -> Run:
    """The run as if it had been on data that held this, and of this code; a dotted name is 'section__field'."""
    config = copy.deepcopy(run.config)
    if held is not None:
        config["data"]["fingerprint"] = held
    for name, value in ({"seed": seed} | changes).items():
        *sections, field = name.split("__")
        inner = config
        for section in sections:
            inner = inner[section]
        inner[field] = value
    return Run(config, run.history, fingerprints=prints)


def editions(run: Run, *told: tuple[str | None, int], **changes: Any) -> list[list[tuple[str | None, int]]]:
    """What the data held and the seed of runs in turn, by edition."""
    made = by_edition([of(run, held, seed, **changes) for held, seed in told])
    return [[(run.config["data"].get("fingerprint"), run.config["seed"]) for run in some] for some in made]


def test_one_draw_of_data_that_holds_something_else_is_other_data_for_every_seed_of_a_run(
    one: Run,
) -> None:
    assert editions(one, ("B", 0), ("C", 1), ("C", 2), settings=FIXED) == [[("B", 0)], [("C", 1), ("C", 2)]]
    first, second, third = [("A", 0), ("A", 1)], [("B", 0)], [("C", 1), ("C", 2)]
    assert editions(one, *first, *second, *third, settings=FIXED) == [first, second, third]
    unsaid = {"data": {"name": "folder", "folder": "clients"}}  # the seed of data is 0 by default
    assert editions(one, *first, *second, *third, settings=unsaid) == [first, second, third]
    assert editions(one, ("A", 0), ("B", 0), ("A", 1), settings=FIXED) == [[("A", 0), ("A", 1)], [("B", 0)]], (
        "which were put back"
    )


def test_data_that_every_seed_draws_anew_are_compared_with_those_of_the_same_seed(one: Run) -> None:
    """In Python a function of the run's seed may have made data that say of themselves that their seed is 0."""
    for settings in (ANEW, None):
        assert editions(one, ("A", 0), ("B", 1), ("C", 2), settings=settings) == [[("A", 0), ("B", 1), ("C", 2)]]
        old, new = [("A0", 0), ("A1", 1), ("A2", 2)], [("B0", 0), ("B1", 1), ("B3", 3)]
        assert editions(one, *old, *new, settings=settings) == [old, new], "and else by their time"
        assert editions(one, *old, ("B3", 3), ("B0", 0), settings=settings) == [[*old, ("B3", 3)], [("B0", 0)]]


def test_data_that_a_later_seed_was_the_first_to_have_are_those_that_others_have_since(one: Run) -> None:
    old, new = [("A", 0), ("A", 1)], [("B", 2), ("B", 0)]
    assert editions(one, *old, *new) == [old, new]


def test_every_edition_holds_one_state_of_a_draw_though_a_seed_has_missed_one(one: Run) -> None:
    found = editions(one, ("A", 0), ("A", 1), ("B", 0), ("C", 0), ("C", 1), ("D", 1))
    assert found == [[("A", 0), ("A", 1)], [("B", 0)], [("C", 0), ("C", 1)], [("D", 1)]]


def test_a_run_that_does_not_say_what_its_data_held_is_of_its_time(one: Run) -> None:
    found = editions(one, ("A", 0), (None, 1), ("B", 0), (None, 2))
    assert found == [[("A", 0), (None, 1)], [("B", 0), (None, 2)]]


def test_another_seed_of_the_data_is_another_draw_and_no_other_edition(one: Run) -> None:
    told = [("A", 3), ("D", 4), ("B", 3), ("E", 4)]
    unsaid = {"data": {"name": "folder"}}
    ours = [of(one, held, data__settings={"seed": seed}, settings=unsaid) for held, seed in told]
    anew = [of(one, held, data__settings={"seed": seed}) for held, seed in told]
    mine = [of(one, held, settings={"data": {"name": "mine:data", "seed": seed}}) for held, seed in told]
    for runs in (ours, anew, mine):  # what a user's own data say of themselves need not be their seed
        assert by_edition(runs) == [runs[:2], runs[2:]]


def test_data_that_were_made_in_python_are_compared_with_those_of_a_settings_file(one: Run) -> None:
    runs = [of(one, "A", settings=FIXED), of(one, "B")]
    assert by_edition(runs) == [runs[:1], runs[1:]]
