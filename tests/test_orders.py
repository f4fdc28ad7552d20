"""The orders of examples: sorted hashes, the same whoever sorts them, and each a client's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import descant
from descant import draws
from descant.draws import bits, orders
from descant.errors import SlowWarning
from tests.ordering import LAST, Case, case, cases

patched = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
threads = pytest.mark.parametrize("threads", [1, 3, 5])  # NumPy sorts, NumPy sorts short rows, torch sorts


@threads
@patched
@given(cases())
def test_an_order_is_the_argsort_of_hashes(monkeypatch: pytest.MonkeyPatch, threads: int, given: Case) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert orders(*given.asked()).equal(given.plainly())


@pytest.mark.parametrize("low", [16, 61], ids=["hashes differ", "many are equal"])
@patched
@given(cases(), st.integers(0, 700), st.integers(0, 3), st.data())
def test_an_order_is_the_clients_own(
    monkeypatch: pytest.MonkeyPatch, low: int, given: Case, longer: int, epochs: int, data: st.DataObject
) -> None:
    monkeypatch.setattr(draws, "_LOW", low)
    monkeypatch.setattr(draws, "_UPPER", -1 << low)
    k = data.draw(st.integers(0, len(given.clients) - 1))
    size = int(given.sizes[k])
    alone = Case(given.seed, given.clients[k : k + 1], given.epochs, size, given.sizes[k : k + 1])
    among = given._replace(examples=given.examples + longer, epochs=given.epochs + epochs)
    found = orders(*among.asked())[k, : given.epochs, :size]
    assert found.equal(orders(*alone.asked())[0])


@given(cases())
def test_every_example_comes_once_and_those_that_are_not_there_last(given: Case) -> None:
    found = orders(*given.asked())
    assert found.dtype == torch.int64
    assert found.sort(-1).values.equal(torch.arange(given.examples).expand_as(found))
    there = found < given.sizes[:, None, None]
    assert there.equal((torch.arange(given.examples) < given.sizes[:, None, None]).expand_as(found))


@threads
@pytest.mark.parametrize("low", [16, 3], ids=["keys", "more examples than keys can number"])
@patched
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=400))
def test_equal_bits_are_told_by_the_examples_numbers(
    monkeypatch: pytest.MonkeyPatch, low: int, threads: int, upper: list[int]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(draws, "_LOW", low)
    monkeypatch.setattr(draws, "_UPPER", -1 << low)
    order = sorted(range(len(upper)), key=lambda n: (upper[n], n))
    assert draws._sorted(torch.tensor([upper]) << low).tolist() == [order]


@pytest.mark.parametrize("length", [2**16, 2**16 + 1])
def test_as_many_examples_as_there_are_numbers_and_one_more(length: int) -> None:
    given = case(7, 1, 1, length)
    assert orders(*given.asked()).equal(given.plainly())


def test_orders_never_change_between_versions() -> None:
    found = orders(bits(7, "batch", "shared", 3), torch.tensor([12]), 1, 12, torch.tensor([10]))
    assert found.tolist() == [[[6, 2, 0, 9, 4, 5, 3, 7, 8, 1, 10, 11]]]


@patched
@given(cases(40))
def test_a_hash_that_is_sorted_apart_gives_the_same_order(monkeypatch: pytest.MonkeyPatch, given: Case) -> None:
    monkeypatch.setattr(draws, "_hash_on_gpu", draws._hashed)
    assert draws._in_steps(*given.asked()).equal(given.plainly())


def test_a_hash_that_cannot_be_compiled_is_said_once_and_drawn_anyway() -> None:
    tried = []

    def failing(*arguments: object) -> Tensor:
        tried.append(arguments)
        raise RuntimeError("there is no compiler here")

    hasher, clients, sizes = (
        draws._Tried(lambda: failing, draws._hashed, "slow"),
        torch.arange(3),
        torch.tensor([4, 2, 5]),
    )
    given = (bits(7, "batch").view(1, 1, 1), clients, torch.arange(2), torch.arange(5), sizes)
    with pytest.warns(SlowWarning, match=r"^slow \(RuntimeError: there is no compiler here\)") as said:
        first, second = hasher(*given), hasher(*given)
    assert len(said) == len(tried) == 1
    address = bits(7, "batch", clients[:, None, None], torch.arange(2)[:, None], torch.arange(5)) >> 16 << 16
    there = torch.arange(5) < sizes[:, None, None]
    assert torch.equal(first, second) and torch.equal(first, address.where(there, LAST >> 16 << 16))


def test_no_memory_is_no_reason_to_stop_compiling() -> None:
    def full(*arguments: object) -> Tensor:
        raise torch.OutOfMemoryError("full")

    hasher = draws._Tried(lambda: full, draws._hashed, "slow")
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            hasher(bits(7).view(1, 1, 1), torch.arange(3), *map(torch.arange, (2, 5)), torch.tensor([4, 2, 5]))


def kernel_of(monkeypatch: pytest.MonkeyPatch, found: Any) -> draws._Tried:
    """What draws orders on a GPU, with a kernel that finds `found`."""
    sorting = SimpleNamespace(orders=found, padded=lambda examples: 16)
    monkeypatch.setitem(sys.modules, "descant.sorting", sorting)
    monkeypatch.setattr(descant, "sorting", sorting, raising=False)
    return draws._Tried(draws._kernel, orders, "slow")


def test_without_triton_orders_are_drawn_and_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "descant.sorting", None)
    monkeypatch.delattr(descant, "sorting", raising=False)
    given, kernel = case(1, 3, 2, 9), draws._Tried(draws._kernel, orders, "slow")
    with pytest.warns(SlowWarning, match=r"^slow \(ModuleNotFoundError: ") as said:
        assert all(kernel(*given.asked()).equal(given.plainly()) for _ in range(2))
    assert len(said) == 1


def test_a_kernel_that_gives_another_order_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, given = kernel_of(monkeypatch, lambda *asked: orders(*asked[:-1]).flip(-1)), case(1, 3, 2, 9)
    with pytest.warns(SlowWarning, match="its order is not that of the processor"):
        assert kernel(*given.asked()).equal(given.plainly())


def test_a_kernel_is_held_against_the_processor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    given = case(1, 3, 20, 9)
    kernel = kernel_of(monkeypatch, lambda *asked: given.plainly())
    monkeypatch.setattr(draws, "orders", lambda *asked: held.append(asked) or orders(*asked))
    assert all(kernel(*given.asked()).equal(given.plainly()) for _ in range(3))
    assert len(held) == 1
