"""The kernel of orders, step by step on a CPU, where Triton is installed. On a GPU: tests/gpu."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from descant import draws
from tests.interpreted import marks, outside, run_of, within
from tests.ordering import Case, case, cases

pytestmark = marks


@outside
def test_the_kernel_holds_step_by_step() -> None:
    done = run_of(__file__)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.startswith("s....")  # all but this one ran


def kernels(given: Case, low: int = draws._LOW) -> torch.Tensor:
    from descant import sorting

    return sorting.orders(*given.asked(), low)


@within
@settings(max_examples=20, deadline=None)
@given(cases(70))
def test_the_kernel_gives_the_processors_order(given: Case) -> None:
    assert kernels(given).equal(given.plainly())


@within
@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 3, 7), (2, 1, 160), (1, 1, 1000), (1, 1, 1024)])
def test_whatever_the_shape(shape: tuple[int, int, int]) -> None:
    given = case(5, *shape)
    assert kernels(given).equal(given.plainly())


@within
def test_keys_that_are_few_are_told_by_the_examples_numbers() -> None:
    # With 62 bits for numbers, two are left of the hash, and of those behind a client's examples all have the same.
    given = case(5, 3, 2, 50)
    there = torch.arange(50) < given.sizes[:, None, None]
    key, clients, epochs, examples, _ = given.asked()
    hashed = draws._absorb(draws._absorb(key, clients[:, None, None]), torch.arange(epochs)[:, None])
    upper = draws._absorb(hashed, torch.arange(examples)) >> 62
    assert kernels(given, 62).equal(upper.masked_fill(~there, 1).argsort(dim=-1, stable=True))


@within
def test_clients_may_lie_apart() -> None:
    given = case(5, 6, 2, 9)
    apart = torch.stack([given.clients, given.sizes], 1)
    assert kernels(given._replace(clients=apart[:, 0], sizes=apart[:, 1])).equal(given.plainly())
