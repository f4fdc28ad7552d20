"""Which runs of a name are the seeds of one row, and which followed from something else."""

from __future__ import annotations

import copy
import importlib
import linecache
import os
import shutil
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from descant import Comparison, FederatedData, simulate
from descant.errors import DamagedError
from descant.experiment import Run
from descant.experiment.grid import comparison
from descant.experiment.identity import layers_fingerprint
from descant.experiment.namesakes import by_edition, rows_of
from descant.sealed import read_json, write_json

DATA = FederatedData.from_arrays([(torch.eye(3).repeat(4, 1), torch.arange(12) % 2) for _ in range(3)])
FIXED = {"data": {"name": "folder", "folder": "clients", "seed": 0}}  # a settings file's
ANEW = {"data": {"name": "folder", "folder": "clients", "seed": "run"}}
MINE = {"method__name": "mine:Mine"}


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


def test_the_order_in_which_runs_are_handed_in_tells_nothing_of_their_time(one: Run) -> None:
    """As of a shell's list of folders, by name: seeds 0 and 1 on the old data, and then on the new."""
    runs = [of(one, held, seed) for held, seed in (("A", 0), ("B", 1), ("C", 0), ("D", 1))]
    for order in permutations(range(4)):
        handed = [runs[i] for i in order]
        assert by_edition(handed) == [[run for run in handed if run in some] for some in (runs[:2], runs[2:])]


def test_of_runs_that_say_the_same_the_one_that_ended_later_counts_whatever_their_order(one: Run) -> None:
    before, after = of(one, "A"), of(one, "A")
    for runs in ([before, after], [after, before]):
        ((kept,),) = rows_of(runs).values()
        assert kept is after


def test_a_run_that_is_read_ended_when_it_says_whatever_became_of_its_files_and_else_when_they_were_written(
    tmp_path: Path,
) -> None:
    run = simulate(nn.Linear(3, 2), DATA, "local", rounds=1, mode="vmap", out=tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    os.utime(path, ns=(5, 7))
    assert Run.load(tmp_path / "run").ended == run.ended > 7
    about, _ = read_json(path)
    write_json(path, {name: told for name, told in about.items() if name != "ended"})
    os.utime(path, ns=(5, 7))
    assert Run.load(tmp_path / "run").ended == 7, "as of the first runs"
    write_json(path, about | {"ended": "yesterday"})
    with pytest.raises(DamagedError, match="does not say when the run ended"):
        Run.load(tmp_path / "run")


def test_data_that_were_made_in_python_are_compared_with_those_of_a_settings_file(one: Run) -> None:
    runs = [of(one, "A", settings=FIXED), of(one, "B")]
    assert by_edition(runs) == [runs[:1], runs[1:]]


def labels(*runs: Run) -> dict[str, list[int]]:
    """The seeds of every row."""
    return {label: [run.config["seed"] for run in seeds] for label, seeds in rows_of(runs).items()}


def test_other_code_of_ones_own_is_another_row(one: Run) -> None:
    runs = [
        of(one, seed=seed, prints={"method": told}, **MINE) for seed, told in enumerate(["06d5", "06d5", "e9b4"])
    ]
    assert labels(*runs) == {"one (code 06d5)": [0, 1], "one (code e9b4)": [2]}
    assert labels(*runs[:2]) == {"one": [0, 1]}


def test_code_is_compared_in_full_and_shortened_as_far_as_labels_differ(one: Run) -> None:
    told = ["06d5aaaa", "06d5abbb", "e9b4"]
    runs = [of(one, seed=seed, prints={"method": each}, **MINE) for seed, each in enumerate(told)]
    assert labels(*runs) == {"one (code 06d5aa)": [0], "one (code 06d5ab)": [1], "one (code e9b4)": [2]}
    assert labels(*runs[1:]) == {"one (code 06d5)": [1], "one (code e9b4)": [2]}


@pytest.mark.parametrize("part", ["aggregator", "codec", "downlink", "attacks"])
@pytest.mark.parametrize(
    "spec", [{"name": "mine:Part"}, [{"name": "ours"}, {"name": "o", "of": {"name": "mine:P"}}]]
)
def test_code_of_what_acts_on_mail_is_told_apart_where_it_or_a_part_of_it_is_of_ones_own(
    one: Run, part: str, spec: Any
) -> None:
    runs = [of(one, seed=seed, prints={part: told}, **{part: spec}) for seed, told in enumerate(["06d5", "e9b4"])]
    assert labels(*runs) == {f"one (code of the {part} 06d5)": [0], f"one (code of the {part} e9b4)": [1]}
    ours = [of(one, seed=seed, prints={part: told}) for seed, told in enumerate(["06d5", "e9b4"])]
    assert labels(*ours) == {"one": [0, 1]}, "of descant's own, versions tell it"


def test_code_is_compared_within_a_version_of_python_whatever_that_of_torch(one: Run) -> None:
    def at(python: str, told: str, seed: int) -> Run:
        others = {"versions__python": python, "versions__torch": f"3.{seed}"}
        return of(one, f"data {seed}", seed, {"method": told}, **MINE, **others)

    assert labels(at("3.11.4", "06d5", 0), at("3.12.1", "e9b4", 1)) == {"one": [0, 1]}
    apart = {"one (code 06d5)": [0], "one (code e9b4)": [1]}
    assert labels(at("3.11.4", "06d5", 0), at("3.11.7", "e9b4", 1)) == apart
    third = labels(at("3.11.4", "06d5", 0), at("3.11.7", "e9b4", 1), at("3.12.1", "f5f1", 2))
    assert third == apart | {"one (code f5f1)": [2]}, "which may be either"


def test_a_run_that_does_not_say_its_code_is_told_from_none_unless_these_differ(one: Run) -> None:
    runs = [of(one, seed=seed, prints=prints, **MINE) for seed, prints in enumerate([{}, {"method": "06d5"}])]
    assert labels(*runs) == {"one": [0, 1]}
    other = of(one, seed=2, prints={"method": "e9b4"}, **MINE)
    assert labels(*runs, other) == {"one": [0], "one (code 06d5)": [1], "one (code e9b4)": [2]}


@pytest.mark.parametrize("part", ["model", "loss", "metric"])
def test_another_model_loss_or_metric_of_the_same_look_is_another_row(one: Run, part: str) -> None:
    def at(told: str, seed: int, **changes: Any) -> Run:
        return of(one, seed=seed, prints={part: told}, **changes)

    assert labels(at("06d5", 0), at("06d5", 1)) == {"one": [0, 1]}
    apart = {f"one (code of the {part} 06d5)": [0], f"one (code of the {part} e9b4)": [1]}
    assert labels(at("06d5", 0), at("e9b4", 1)) == apart
    for package in ("python", "torch", "descant"):
        assert labels(at("06d5", 0), at("e9b4", 1, **{f"versions__{package}": "9.9.9"})) == {"one": [0, 1]}
    assert labels(at("06d5", 0), at("e9b4", 1, held="B")) == {"one": [0, 1]}, "it may have been made to fit them"


def test_other_code_of_the_users_layers_is_another_row_whatever_the_data(one: Run) -> None:
    def at(told: str, seed: int, **changes: Any) -> Run:
        return of(one, f"data {seed}", seed, {"model": f"made to fit {seed}", "layers": told}, **changes)

    assert labels(at("06d5", 0), at("06d5", 1)) == {"one": [0, 1]}
    apart = {"one (code of the layers 06d5)": [0], "one (code of the layers e9b4)": [1]}
    assert labels(at("06d5", 0), at("e9b4", 1)) == apart
    assert labels(at("06d5", 0), at("e9b4", 1, versions__python="9.9.9")) == {"one": [0, 1]}


def test_labels_say_what_differs(one: Run) -> None:
    lr = one.config["method"]["lr"]
    assert labels(one, of(one, method__lr=0.5)) == {f"one (lr={lr})": [0], "one (lr=0.5)": [0]}
    wide = of(one, task__parameters=17, task__model="Net(17)")
    assert labels(one, wide) == {"one (parameters=8)": [0], "one (parameters=17)": [0]}
    told = list(labels(one, of(one, task__model="Net(tanh)"), of(one, task__model="Net(relu)")))
    assert len({label[:11] for label in told}) == 1 and all(label.startswith("one (model ") for label in told)
    runs = [
        of(one, seed=seed, method__lr=lr, prints={"method": told}, **MINE)
        for seed, (lr, told) in enumerate([(0.1, "06d5"), (0.1, "e9b4"), (0.5, "e9b4")])
    ]
    assert labels(*runs) == {"one (lr=0.1, code 06d5)": [0], "one (lr=0.1, code e9b4)": [1], "one (lr=0.5)": [2]}


def test_labels_say_as_much_as_it_takes(one: Run) -> None:
    many = {"method__lr": 0.5, "method__steps": 7, "method__weight_decay": 0.1, "rounds": 9}
    assert list(labels(one, of(one, **many)))[1] == "one (lr=0.5, steps=7, weight_decay=0.1)"
    found = list(labels(one, of(one, **many), of(one, **many | {"rounds": 8})))
    assert found[1:] == [f"one (lr=0.5, steps=7, weight_decay=0.1, rounds={rounds})" for rounds in (9, 8)]


def test_a_setting_that_there_was_not_yet_is_nothing(one: Run) -> None:
    before = of(one, seed=1)
    assert before.config.pop("health") is None
    assert labels(one, before) == {"one": [0, 1]}


def test_a_label_that_somebody_chose_for_other_runs_stays_theirs(one: Run) -> None:
    lr = one.config["method"]["lr"]
    taken = of(one, label=f"one (lr={lr})", seed=4)
    named = {f"one (lr={lr})": [4], f"one (lr={lr}) #2": [0], "one (lr=0.5)": [0]}
    assert labels(taken, one, of(one, method__lr=0.5)) == named
    assert labels(one, of(one, method__lr=0.5), taken) == named, "also if theirs come later"


class Shows(nn.Linear):
    """A layer that shows a function of its own, with its address."""

    def extra_repr(self) -> str:
        return str(lambda x: x)


class Other(nn.Module):
    """Two layers of torch in one of ones own."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_the_code_of_layers_is_that_of_ones_own_whatever_their_size() -> None:
    assert layers_fingerprint(nn.Linear(3, 2)) == layers_fingerprint(nn.Sequential(nn.Linear(5, 2), nn.ReLU()))
    assert layers_fingerprint(Other(2)) == layers_fingerprint(Other(5)) != layers_fingerprint(nn.Linear(3, 2))
    assert layers_fingerprint(Other(2)) == layers_fingerprint(nn.Sequential(Other(4), Other(2)))
    assert layers_fingerprint(Other(2)) != layers_fingerprint(Shows(3, 2))


def test_where_a_models_functions_lie_in_memory_tells_no_rows_apart() -> None:
    def of_seed(seed: int) -> Run:
        return simulate(Shows(3, 2), DATA, "local", rounds=1, mode="vmap", seed=seed, label="one")

    runs = [of_seed(0), of_seed(1)]
    assert " at 0x" in runs[0].config["task"]["model"]
    assert labels(*runs) == {"one": [0, 1]}


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, data):
        super().__init__()
        self.layer = nn.Linear(data.input_shape[0], data.classes)

    def forward(self, x):
        return torch.{of}(self.layer(x))
"""


def test_runs_on_files_and_of_a_model_that_changed_between_seeds_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "clients").mkdir()

    def run(seed: int, data: int, activation: str) -> Run:
        for k in range(2):
            inputs = np.random.default_rng([data, k]).normal(size=(12, 2)).astype(np.float32)
            np.savez(tmp_path / "clients" / f"{k}.npz", inputs=inputs, targets=np.arange(12) % 2)
        monkeypatch.delitem(sys.modules, "own_net", raising=False)
        (tmp_path / "own_net.py").write_text(NET.format(of=activation))
        importlib.invalidate_caches()
        linecache.clearcache()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        spec = {"name": "folder", "folder": str(tmp_path / "clients"), "seed": 3}
        values = {"data": spec, "model": "own_net:Net", "methods": ["fedavg"], "rounds": 1, "mode": "vmap"}
        ((_, made),) = comparison(values | {"seeds": [seed]}, tmp_path / "runs").run()
        return made

    runs = [run(0, 0, "tanh"), run(1, 0, "relu"), run(2, 1, "relu"), run(3, 2, "relu")]
    told = [run.fingerprints["model"][:4] for run in runs[:2]]
    found = {label: [run.config["seed"] for run in seeds] for label, seeds in Comparison(runs).runs.items()}
    assert found == {
        f"fedavg (code of the model {told[0]}), on folder (1)": [0],
        f"fedavg (code of the model {told[1]}), on folder (1)": [1],
        "fedavg, on folder (2)": [2],
        "fedavg, on folder (3)": [3],
    }
