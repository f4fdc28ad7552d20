"""MOCHA in runs: several outputs, clients that are late or lost, modes, and what it refuses."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
import torch
from torch import nn

from descant import FederatedData, Task
from descant.codecs import TopK
from descant.engine.cohort import finished_share
from descant.errors import SettingError, TaskError
from descant.methods import MOCHA
from tests.methods.runs import SEED, N, column, deployed, far, run

LAM = 0.05
NEVER = 10**6  # rounds


def test_several_outputs_are_a_problem_each(
    data: FederatedData, linear: Task, two: FederatedData, score: Task
) -> None:
    """While clients are unrelated: class 2 against the rest is what a run with that question alone gives."""
    method = MOCHA(lam=LAM, every=NEVER)
    whole, single = deployed(run(linear, data, method, cohort=4)), deployed(run(score, two, method, cohort=4))
    assert far(whole[:, 8:12], single[:, :4]) <= 1e-12 and far(whole[:, 14], single[:, 4]) <= 1e-12
    assert float(single.abs().max()) > 0.01


def test_labels_of_zero_and_one_and_a_model_without_a_bias(two: FederatedData) -> None:
    labels = [{"train": (X, (y > 0).long())} for X, y in map(two.train.client, range(N))]
    plain = Task(nn.Linear(4, 1, bias=False).double(), loss="hinge")
    method = MOCHA(lam=LAM, every=2)
    by_labels = deployed(run(plain, FederatedData.from_arrays(labels, classes=2), method))
    assert by_labels.shape == (N, 4) and far(by_labels, deployed(run(plain, two, method))) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    "trouble",
    [{"stragglers": 0.7}, {"lost": 0.4}, {"cohort": 3}, {"codec": TopK(share=0.4, feedback=False)}],
    ids=["late", "lost", "few", "top-k"],
)
def test_the_gap_falls_whoever_is_late_or_lost(two: FederatedData, score: Task, trouble: dict[str, Any]) -> None:
    """What clients send says where they are, so that the next message makes up for a lost one."""
    done = run(score, two, MOCHA(lam=LAM, loss="squared", epochs=2, every=NEVER), rounds=60, **trouble)
    gaps = column(done, "duality_gap")
    assert gaps[0] > 0.1 and gaps[-1] <= 1e-4


@pytest.mark.parametrize("mode", ["loop", pytest.param("compile", marks=pytest.mark.slow)])
def test_every_mode_gives_the_same(two: FederatedData, score: Task, mode: Any) -> None:
    method = MOCHA(lam=LAM, loss="logistic", every=2)
    done = run(score, two, method, rounds=3, mode=mode)
    assert done.config["execution"]["mode"] == mode and done.config["execution"]["fallbacks"] == []
    assert far(deployed(done), deployed(run(score, two, method, rounds=3))) <= 1e-10


def test_a_straggler_takes_a_part_of_the_steps(two: FederatedData, score: Task) -> None:
    done = run(score, two, MOCHA(lam=LAM, epochs=3), stragglers=0.7)
    for t, row in enumerate(done.history.rounds, start=1):
        share = finished_share(SEED, t, torch.arange(N), 0.7)
        taken = [ceil(3 * n * s) for n, s in zip(two.train.sizes.tolist(), share.tolist(), strict=True)]
        assert row["gradients"] == sum(taken) < 3 * int(two.train.sizes.sum())


@pytest.mark.slow
def test_it_learns_to_tell_classes_apart(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, MOCHA(lam=1e-3, epochs=5), rounds=20)
    first, last = (done.history.figure("personal", t, "train_accuracy")["mean"] for t in (0, 20))
    assert last == pytest.approx(1) and first < 0.7


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
            r"0\.weight \[5, 4\], 0\.bias \[5\], 2\.weight",
        ),
        (nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten()), r"1\.weight \[3, 1, 4\]"),
    ],
    ids=["mlp", "convolution"],
)
def test_other_models_are_refused(data: FederatedData, module: nn.Module, words: str) -> None:
    with pytest.raises(TaskError, match=rf"MOCHA trains linear models .* this one has {words}"):
        run(Task(module.double()), data, MOCHA(), rounds=1)


def test_targets_that_its_loss_does_not_take_are_refused(regression: FederatedData, plane: Task) -> None:
    with pytest.raises(TaskError, match=r"MOCHA\.loss = 'hinge' takes one of 2 labels .* client 0 has targets"):
        run(plane, regression, MOCHA(), rounds=1)
    assert deployed(run(plane, regression, MOCHA(loss="squared"), rounds=1), 5).abs().max() > 0


def test_labels_are_no_numbers_for_several_outputs(data: FederatedData, linear: Task) -> None:
    with pytest.raises(TaskError, match=r"MOCHA\.loss = 'squared' takes 3 numbers an example, and client 0 has"):
        run(linear, data, MOCHA(loss="squared"), rounds=1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"lam": 0.0}, r"MOCHA\.lam = 0\.0: it must be a positive number"),
        ({"loss": "absolute"}, r"MOCHA\.loss = 'absolute': it must be"),
        ({"epochs": 0}, r"MOCHA\.epochs = 0: it must be a positive number"),
        ({"every": 0}, r"MOCHA\.every = 0: it must be a positive number of rounds"),
        ({"epsilon": -1.0}, r"MOCHA\.epsilon = -1\.0: it must be zero or more"),
    ],
)
def test_what_makes_no_sense_is_refused(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        MOCHA(**setting)
