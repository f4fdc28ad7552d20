"""Which examples a client sees: every one once an epoch, in an order that depends on its address alone."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.data import Part
from descant.execution.batches import Rows, Schedule
from descant.methods import Work

Sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)
Address = tuple[int, str, int]
ADDRESS: Address = (0, "personal", 1)


def part(sizes: list[int]) -> Part:
    """Client k's example i is the number 100 k + i, so that a batch tells whom and what it holds."""
    examples = torch.cat([100 * k + torch.arange(n) for k, n in enumerate(sizes)]).double()
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return Part(examples[:, None], examples.long(), offsets)


def schedule(
    sizes: list[int],
    work: Work,
    clients: list[int] | None = None,
    address: Address = ADDRESS,
    drop_last: bool = False,
    share: float = 1.0,
) -> Schedule:
    who = torch.arange(len(sizes)) if clients is None else torch.tensor(clients)
    shares = torch.full((len(who),), share, dtype=torch.float64)
    return Schedule(Rows(part(sizes), who), work, shares, address, drop_last)


def seen(schedule: Schedule, k: int) -> list[list[int]]:
    """The examples of the k-th client at each of its own steps."""
    steps = int(schedule.steps[k])
    batches = [schedule[s] for s in range(steps)]
    return [batch.targets[k][batch.mask[k]].tolist() for batch in batches]


@given(sizes=Sizes, batch=st.integers(1, 15), epochs=st.integers(1, 3))
def test_an_epoch_visits_every_example_exactly_once(sizes: list[int], batch: int, epochs: int) -> None:
    drawn = schedule(sizes, Work(epochs=epochs, batch=batch))
    for k, n in enumerate(sizes):
        batches = seen(drawn, k)
        per_epoch = -(-n // batch)
        assert len(batches) == epochs * per_epoch
        for e in range(epochs):
            epoch = batches[e * per_epoch : (e + 1) * per_epoch]
            assert [len(b) for b in epoch[:-1]] == [batch] * (per_epoch - 1)
            assert sorted(chain(*epoch)) == [100 * k + i for i in range(n)]


@given(sizes=Sizes, batch=st.integers(1, 15), epochs=st.integers(1, 3))
def test_drop_last_leaves_out_the_short_minibatch_but_never_a_whole_epoch(
    sizes: list[int], batch: int, epochs: int
) -> None:
    drawn = schedule(sizes, Work(epochs=epochs, batch=batch), drop_last=True)
    for k, n in enumerate(sizes):
        batches = seen(drawn, k)
        assert len(batches) == epochs * max(1, n // batch)
        assert {len(b) for b in batches} == {min(n, batch)}
        assert all(len(set(b)) == len(b) for b in batches)


@given(sizes=Sizes, batch=st.integers(1, 15), steps=st.integers(1, 9))
def test_steps_run_on_through_the_epochs(sizes: list[int], batch: int, steps: int) -> None:
    by_steps = schedule(sizes, Work(steps=steps, batch=batch))
    by_epochs = schedule(sizes, Work(epochs=steps, batch=batch))
    for k in range(len(sizes)):
        assert seen(by_steps, k) == seen(by_epochs, k)[:steps]


@given(sizes=Sizes, batch=st.integers(12, 20))
def test_a_minibatch_larger_than_a_client_is_the_whole_client(sizes: list[int], batch: int) -> None:
    drawn = schedule(sizes, Work(steps=2, batch=batch))
    for k, n in enumerate(sizes):
        assert [sorted(b) for b in seen(drawn, k)] == [[100 * k + i for i in range(n)]] * 2


@given(sizes=Sizes, steps=st.integers(1, 4))
def test_no_minibatch_size_is_all_local_data_in_its_own_order(sizes: list[int], steps: int) -> None:
    drawn = schedule(sizes, Work(steps=steps))
    for k, n in enumerate(sizes):
        assert seen(drawn, k) == [[100 * k + i for i in range(n)]] * steps


@given(sizes=Sizes, batch=st.integers(1, 15), steps=st.integers(2, 9))
def test_hold_keeps_the_first_minibatch(sizes: list[int], batch: int, steps: int) -> None:
    held = schedule(sizes, Work(steps=steps, batch=batch, hold=True))
    free = schedule(sizes, Work(steps=steps, batch=batch))
    for k in range(len(sizes)):
        assert seen(held, k) == [seen(free, k)[0]] * steps


@given(sizes=Sizes, batch=st.integers(1, 6), data=st.data())
def test_minibatches_do_not_depend_on_who_else_is_there(sizes: list[int], batch: int, data: st.DataObject) -> None:
    work = Work(epochs=2, batch=batch)
    who = data.draw(st.permutations(range(len(sizes))).map(lambda p: p[: max(1, len(p) // 2)]))
    everyone, some = schedule(sizes, work), schedule(sizes, work, clients=list(who))
    for i, k in enumerate(who):
        assert seen(some, i) == seen(everyone, k)
        kept, address = everyone[0].key[k], some[0].key[i]
        assert kept == address  # dropout is addressed alike


def test_another_seed_role_round_or_client_sees_another_order() -> None:
    addresses: list[Address] = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2)]
    orders = [
        tuple(example % 100 for example in seen(schedule([30, 30], Work(epochs=1, batch=30), None, a), k)[0])
        for a in addresses
        for k in (0, 1)
    ]
    assert len(set(orders)) == len(orders)


def test_every_epoch_has_an_order_of_its_own() -> None:
    epochs = seen(schedule([30], Work(epochs=5, batch=30)), 0)
    assert len({tuple(epoch) for epoch in epochs}) == 5


@pytest.mark.parametrize("epochs", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_every_example_is_as_likely_to_come_first(epochs: int) -> None:
    """Chi-square with 7 degrees of freedom: 24.3 is its 99.9 % point."""
    drawn, expected = schedule([8], Work(epochs=epochs, batch=8)), epochs / 8
    first = torch.tensor([epoch[0] for epoch in seen(drawn, 0)]).bincount(minlength=8)
    assert float(((first - expected).square() / expected).sum()) < 24.3


@pytest.mark.parametrize("window", [1, 7, 40])
def test_how_far_ahead_minibatches_are_drawn_does_not_matter(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    sizes, work = [5, 1, 8], Work(epochs=4, batch=2)
    at_once = [seen(schedule(sizes, work), k) for k in range(3)]
    monkeypatch.setattr("descant.execution.batches._WINDOW", window)
    drawn = schedule(sizes, work)
    assert [seen(drawn, k) for k in range(3)] == at_once
