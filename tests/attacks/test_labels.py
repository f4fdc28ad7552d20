"""Random labels: the attackers' training labels alone, and each by its own address."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task, simulate
from descant.attacks import ATTACKS, FlippedLabels, RandomLabels
from descant.context import Context
from descant.errors import SettingError
from descant.methods import FedAvg, Local
from tests.held import personal

WHO = torch.tensor([0, 4])


def context(task: Task, seed: int = 0) -> Context:
    return Context(0, seed, 5, task.layout, task.start())


def test_only_what_attackers_train_on_is_changed(labelled: FederatedData, linear: Task) -> None:
    poisoned = RandomLabels().poison(context(linear), labelled, WHO)
    for part in ("valid", "test"):
        assert torch.equal(poisoned.part(part).targets, labelled.part(part).targets)
    assert torch.equal(poisoned.train.inputs, labelled.train.inputs)
    for k in range(5):
        before, after = labelled.train.client(k)[1], poisoned.train.client(k)[1]
        assert torch.equal(before, after) == (k not in WHO.tolist())
        assert after.dtype == before.dtype and bool(((after >= 0) & (after < 3)).all())


def test_every_class_is_as_likely(linear: Task) -> None:
    n = 9000
    data = FederatedData.from_arrays([{"train": (torch.zeros(n, 4), torch.zeros(n).long())}], classes=3)
    counts = RandomLabels().poison(context(linear), data, torch.tensor([0])).counts()[0]
    assert float((counts / n - 1 / 3).abs().max()) <= 4 * (2 / 9 / n) ** 0.5


def test_labels_follow_from_the_seed_and_the_client(labelled: FederatedData, linear: Task) -> None:
    attack = RandomLabels()
    once, again = (attack.poison(context(linear), labelled, WHO).train.targets for _ in range(2))
    assert torch.equal(once, again)
    assert not torch.equal(once, attack.poison(context(linear, seed=1), labelled, WHO).train.targets)
    more = attack.poison(context(linear), labelled, torch.tensor([0, 2, 4])).train
    whole = attack.poison(context(linear), labelled, WHO).train
    assert torch.equal(more.client(4)[1], whole.client(4)[1]), "whoever else attacks"
    assert not torch.equal(whole.client(0)[1][:25], more.client(2)[1])


@pytest.mark.parametrize("k", range(5))
def test_an_attacker_alone_poisons_what_it_poisons_among_all(labelled: FederatedData, linear: Task, k: int) -> None:
    whole = RandomLabels().poison(context(linear), labelled, WHO).train.client(k)[1]
    alone = RandomLabels().poison(context(linear), labelled.only([k]), WHO).train.client(0)[1]
    assert torch.equal(alone, whole)


def test_sequences_of_labels(linear: Task) -> None:
    x, y = torch.zeros(4, 6).long(), torch.zeros(4, 6).long()
    data = FederatedData.from_arrays([{"train": (x, y)}, {"train": (x, y)}], classes=50)
    poisoned = RandomLabels().poison(context(linear), data, torch.tensor([1])).train
    assert not poisoned.client(0)[1].any() and len(poisoned.client(1)[1].unique()) > 10
    alone = RandomLabels().poison(context(linear), data.only([1]), torch.tensor([1])).train
    assert torch.equal(alone.targets, poisoned.client(1)[1])


def test_a_regression_has_no_labels(linear: Task) -> None:
    data = FederatedData.from_arrays([{"train": (torch.zeros(3, 4), torch.zeros(3, 1))}])
    with pytest.raises(SettingError, match="needs labels"):
        RandomLabels().poison(context(linear), data, torch.tensor([0]))


def test_in_a_run_benign_clients_train_as_ever(labelled: FederatedData, linear: Task, everyone: Tensor) -> None:
    """Local training tells them apart: no message carries the poison over."""
    how = {"rounds": 2, "mode": "vmap", "evaluate": 2}
    plain = simulate(linear, labelled, Local(steps=3), **how)
    attacked = simulate(linear, labelled, Local(steps=3), attacks=[RandomLabels()], malicious=[0, 4], **how)
    one, other = personal(plain), personal(attacked)
    assert [torch.equal(one[k], other[k]) for k in everyone.tolist()] == [False, True, True, True, False]
    averaged = simulate(linear, labelled, FedAvg(steps=3), attacks=[RandomLabels()], malicious=2, **how)
    assert int(averaged.history.federation.members("malicious").sum()) == 2


def test_it_needs_attackers_to_be_said_how(labelled: FederatedData) -> None:
    with pytest.raises(SettingError, match="nothing says how: name what they do"):
        simulate(Task(nn.Linear(4, 3).double()), labelled, Local(), rounds=1, malicious=1)


def test_it_is_known_by_its_name() -> None:
    assert ATTACKS["random-labels"] is RandomLabels


@pytest.mark.parametrize(
    ("attack", "becomes"),
    [(FlippedLabels(), [2, 1, 0]), (FlippedLabels(source=1, target=2), [0, 2, 2])],
    ids=["mirrored", "one class"],
)
def test_labels_are_flipped_for_attackers_alone(
    labelled: FederatedData, linear: Task, attack: FlippedLabels, becomes: list[int]
) -> None:
    poisoned = attack.poison(context(linear), labelled, WHO)
    for k in range(5):
        before, after = labelled.train.client(k)[1], poisoned.train.client(k)[1]
        wanted = torch.tensor(becomes)[before] if k in WHO.tolist() else before
        assert torch.equal(after, wanted)
    assert torch.equal(poisoned.test.targets, labelled.test.targets)
    alone = attack.poison(context(linear), labelled.only([4]), WHO).train.client(0)[1]
    assert torch.equal(alone, poisoned.train.client(4)[1])


def test_flips_that_cannot_be_are_refused(labelled: FederatedData, linear: Task) -> None:
    for wrong in ({"source": 1}, {"source": 1, "target": 1}, {"source": -1, "target": 0}):
        with pytest.raises(SettingError, match=r"target|source"):
            FlippedLabels(**wrong)
    with pytest.raises(SettingError, match=r"target = 3, and the data .* has 3 classes"):
        simulate(linear, labelled, FedAvg(), rounds=1, attacks=FlippedLabels(source=0, target=3), malicious=1)
