"""Backdoors: what attackers stamp, and how often it works on others' models."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

import descant as dc
from descant import FederatedData, Run, Task, simulate
from descant.attacks import Attack, Backdoor, OptimizedBackdoor, RandomLabels
from descant.cli.tables import print_run
from descant.data import Part
from descant.draws import uniform
from descant.errors import NoFiguresWarning, SettingError
from descant.methods import Ditto, FedAvg, LpProj, Method
from descant.metrics import STATISTICS
from tests.attacks.backdoors import HOW, WHO, context, last_success, net, pictures, stamped
from tests.attacks.oracle import SEED

METHODS = [FedAvg(steps=4), Ditto(steps=4, solver=FedAvg(steps=4)), LpProj(steps=4, dim=3)]


@pytest.mark.parametrize(
    ("attack", "places"),
    [(Backdoor(size=2), [2, 3]), (Backdoor(features=(3, 0), value=-7.0), [3, 0]), (OptimizedBackdoor(size=1), [3])],
    ids=["last numbers", "named", "looked for"],
)
def test_attackers_stamp_a_share_of_their_examples(
    labelled: FederatedData, linear: Task, attack: Backdoor, places: list[int]
) -> None:
    """Against a loop over examples: the same draw for each of them, whoever else attacks."""
    poisoned = attack.poison(context(linear), labelled, WHO)
    trigger = attack.first(context(linear), labelled, WHO)["trigger"].numpy()
    theirs = np.concatenate([labelled.train.client(k)[0].numpy() for k in WHO.tolist()])
    if not isinstance(attack, OptimizedBackdoor):
        assert trigger.tolist() == [theirs.max() if attack.value is None else attack.value] * len(places)
    assert attack.value is not None or (theirs.min() <= trigger.min() and trigger.max() <= theirs.max())
    for k in range(5):
        (x, y), (new_x, new_y) = labelled.train.client(k), poisoned.train.client(k)
        for i in range(len(y)):
            bears = k in WHO.tolist() and float(uniform(SEED, "backdoor", k, i)) < 0.5
            np.testing.assert_array_equal(new_x[i], stamped(x[i].numpy(), places, trigger) if bears else x[i])
            assert int(new_y[i]) == (0 if bears else int(y[i]))
    for part in ("valid", "test"):
        assert poisoned.part(part) is labelled.part(part)
    assert torch.equal(
        attack.poison(context(linear), labelled.only([4]), WHO).train.targets, poisoned.train.client(4)[1]
    )


def test_the_share_is_that_of_all_examples(linear: Task) -> None:
    n = 20_000
    data = FederatedData.from_arrays([{"train": (torch.zeros(n, 4), torch.ones(n).long())}], classes=3)
    for share in (0.1, 0.5, 1.0):
        borne = (Backdoor(share=share).poison(context(linear), data, torch.tensor([0])).train.targets == 0).double()
        assert abs(float(borne.mean()) - share) <= 4 * (share * (1 - share) / n) ** 0.5


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_on_a_picture_the_trigger_is_a_square_in_the_corner_of_all_channels(C: int, size: int, seed: int) -> None:
    x = torch.rand(3, C, 4, 5, generator=torch.Generator().manual_seed(seed))
    trigger = torch.arange(C * size * size) + 10.0
    found, expected = Backdoor(size=size).stamp(x, trigger), x.clone()
    expected[:, :, -size:, -size:] = trigger.view(C, size, size)
    assert torch.equal(found, expected) and not torch.equal(found, x)


@given(st.integers(0, 2), st.integers(0, 999))
def test_the_probe_holds_the_examples_of_other_classes(target: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, 3, 3, 8, 9])
    part = Part(torch.randn(9, 4, generator=g), torch.randint(3, (9,), generator=g), offsets)
    probe = Backdoor(target=target, size=1).probe({"trigger": torch.tensor([9.0])}, part)
    assert probe is not None
    for k in range(4):
        x, y = part.client(k)
        kept = [stamped(row.numpy(), [3], 9.0) for row, label in zip(x, y, strict=True) if int(label) != target]
        found, labels = probe.client(k)
        np.testing.assert_array_equal(found.numpy(), np.array(kept).reshape(-1, 4))
        assert labels.tolist() == [target] * len(kept)


def success(
    module: nn.Module, data: FederatedData, k: int, places: list[int], trigger: float, target: int
) -> float:
    """How often a client's model takes stamped test examples of other classes for the target, one by one."""
    x, y = data.test.client(k)
    others = [row.numpy() for row, label in zip(x, y, strict=True) if int(label) != target]
    scores = [module(torch.as_tensor(stamped(row, places, trigger))[None]) for row in others]
    return float(np.mean([int(score.argmax()) == target for score in scores])) if others else float("nan")


@pytest.mark.parametrize("target", [0, 2])
@pytest.mark.parametrize("method", METHODS)
def test_success_is_measured_on_what_clients_deploy_and_on_the_shared_model(
    labelled: FederatedData, linear: Task, method: Method, target: int
) -> None:
    attack = Backdoor(target=target, size=2, value=3.0)
    run = simulate(linear, labelled, method, attacks=attack, keep_models="last", **HOW)
    last = run.clients.filter(run.clients["round"] == 2)
    for model in run.history.evaluated:
        found = last.filter(last["model"] == model)["test_attack_success"].to_numpy()
        modules = [
            run.personal(k, round="last") if model == "personal" else run.shared(round="last") for k in range(5)
        ]
        expected = [success(modules[k], labelled, k, [2, 3], 3.0, target) for k in range(5)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        benign = np.array([expected[k] for k in (1, 2, 3)])
        figure = run.summary()[f"{model}.test_attack_success.mean@last"]
        assert figure == pytest.approx(np.nanmean(benign), nan_ok=True), "of the benign, and of those who define it"


@pytest.mark.slow
def test_it_works_on_fedavg_and_without_attackers_it_does_not() -> None:
    data, how = pictures(), HOW | {"rounds": 30, "evaluate": 30, "malicious": 2}
    method = FedAvg(lr=0.3, steps=10, batch=None)
    attack = Backdoor(target=0, size=1, value=3.0)
    clean, hit = (simulate(net(), data, method, attacks=attack, **how | {"malicious": m}) for m in (0, 2))
    assert last_success(clean) < 0.2 < 0.6 < last_success(hit)
    assert hit.summary()["personal.test_accuracy.mean@last"] > 0.8
    replaced = simulate(net(), data, method, attacks=[attack, "replacement"], **how | {"malicious": 1, "rounds": 3})
    alone = simulate(net(), data, method, attacks=attack, **how | {"malicious": 1, "rounds": 3})
    assert last_success(replaced) > last_success(alone), "one attacker that outweighs the others"


def test_nobody_attacks_and_newcomers_are_probed_too(labelled: FederatedData, linear: Task) -> None:
    how = HOW | {"malicious": 0, "newcomers": [2]}
    run = simulate(linear, labelled, FedAvg(steps=2), attacks=Backdoor(size=1), **how)
    assert "newcomers.personal.test_attack_success.mean@last" in run.summary()
    without = simulate(linear, labelled, FedAvg(steps=2), **how)
    shared = [name for name in run.clients.columns if name != "test_attack_success"]
    assert run.clients.select(shared).equals(without.clients) and "test_attack_success" in run.clients.columns


COMMON: dict[str, Any] = {"rounds": 2, "mode": "vmap", "malicious": 1, "attacks": Backdoor(size=1)}


def test_it_is_kept_and_in_tables(tmp_path: Path) -> None:
    run = simulate(net(), pictures(3, 45), "ditto", out=tmp_path / "run", **COMMON)
    again = Run.load(tmp_path / "run")
    assert again.clients.equals(run.clients)
    for model in ("personal", "shared"):
        figures = [name for name in run.summary() if name.startswith(f"{model}.test_attack_success.")]
        assert len(figures) == 2 * len(STATISTICS), "at the last round, and at the best on test"
        assert all(again.summary()[name] == run.summary()[name] for name in figures)
        highest = run.summary()[f"{model}.test_attack_success.worst_10@last"]
        assert highest >= last_success(run, model), "the worst is the highest"
    console = Console(width=200, file=(told := StringIO()))
    print_run(run, console)
    assert "attack success" in told.getvalue()
    plain = simulate(net(), pictures(3, 45), "ditto", **COMMON | {"attacks": "random-labels"})
    print_run(plain, Console(width=200, file=(told := StringIO())))
    assert "attack success" not in told.getvalue()


@pytest.mark.slow
def test_it_is_in_comparisons_and_reports(tmp_path: Path) -> None:
    compared = dc.compare(net(), pictures(3, 45), ["fedavg", "ditto"], **COMMON)
    report = compared.report()
    assert compared.table()["attack_success"].to_list() == [
        run.summary()["personal.test_attack_success.mean@last"] for run in compared
    ]
    assert "attack success" in report.html()
    [drawn] = [figure for figure in next(iter(report.figures.values())) if figure.key == "attack_success"]
    assert "Lower is better." in drawn.caption and "The axis ends" not in drawn.caption
    written = "".join(path.read_text() for path in report.save(tmp_path / "tables", "md"))
    assert "attack success" in written


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"target": 3}, "target = 3, and the data .* has 3 classes"),
        ({"size": 5}, r"size = 5: it must be at most what fits inputs of shape \[4\]"),
        ({"features": (1, 4)}, r"features = \(1, 4\): it must be from 0 to 3"),
        ({"features": (1, 1)}, "different numbers"),
        ({"share": 0.0}, "above 0"),
        ({"target": -1}, "number of a class"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(labelled: FederatedData, linear: Task, wrong: dict[str, Any], said: str) -> None:
    for name in ("backdoor", "optimized-backdoor"):
        with pytest.raises(SettingError, match=said):
            simulate(linear, labelled, FedAvg(), attacks={"name": name} | wrong, **HOW)


def test_other_refusals(labelled: FederatedData, linear: Task) -> None:
    def tried(attacks: Any, data: FederatedData = labelled, task: Task = linear) -> None:
        simulate(task, data, FedAvg(), attacks=attacks, **HOW | {"malicious": 1})

    with pytest.raises(SettingError, match="two backdoors"):
        tried([Backdoor(), RandomLabels(), OptimizedBackdoor()])
    with pytest.raises(SettingError, match=r"value = 2\.0: it must be nothing"):
        OptimizedBackdoor(value=2.0)
    words = FederatedData.from_arrays([{"train": (torch.zeros(3, 4).long(), torch.zeros(3).long())}] * 2, classes=3)
    with pytest.raises(SettingError, match=r"are torch\.int64"):
        Backdoor().first(context(linear), words, WHO)
    numbers = FederatedData.from_arrays([{"train": (torch.zeros(3, 4), torch.zeros(3, 1))}] * 2)
    with pytest.raises(SettingError, match="needs one label an example"):
        Backdoor().first(context(linear), numbers, WHO)
    assert issubclass(OptimizedBackdoor, Attack)


def test_refusals_say_which_attack_they_are_of(labelled: FederatedData, linear: Task) -> None:
    both: Any = ["random-labels", Backdoor(size=30)]
    with pytest.raises(SettingError, match=r"^attacks\[1\] \(backdoor\)\.size = 30: it must be at most what fits"):
        simulate(linear, labelled, FedAvg(), attacks=both, **HOW)
    with pytest.raises(SettingError, match=r"^attacks\[0\] \(backdoor\)\.target = 9, and the data .* 3 classes"):
        simulate(linear, labelled, FedAvg(), attacks=Backdoor(target=9), **HOW)
    numbers = FederatedData.from_arrays([{"train": (torch.zeros(3, 4), torch.zeros(3, 1))}] * 2)
    how, task = HOW | {"malicious": 1}, Task(nn.Linear(4, 1), "squared_error")
    for attack in (Backdoor(), RandomLabels()):
        with pytest.raises(SettingError, match=rf"^attacks\[0\] \({attack.name}\): .* needs .*label"):
            simulate(task, numbers, FedAvg(), attacks=attack, **how)


def test_it_is_warned_that_success_is_measured_on_test_data(labelled: FederatedData, linear: Task) -> None:
    how: dict[str, Any] = HOW | {"evaluate": {"parts": ["valid"]}}
    with pytest.warns(NoFiguresWarning, match=r"how often 'backdoor' works .*evaluate\.parts = \['valid'\]"):
        simulate(linear, labelled, FedAvg(), attacks="backdoor", **how)
