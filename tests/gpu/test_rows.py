"""Rows that a GPU reads and writes in the processor's memory, where there is one: by its kernel, and by streams."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import descant.state
from descant.errors import SlowWarning
from descant.state.leaves import Shapes
from descant.state.streams import Streams
from descant.trees import Tree
from tests.gpu import waiting
from tests.moving import DTYPES, Moved, moved

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]
LONG_ENOUGH = 10**9  # cycles, half a second: nothing that is asked for before takes as long
N = 60
SPEC: Shapes = {
    "v": ((50_001,), torch.float32),
    "n": ((), torch.int64),
    "half": ((3, 7), torch.bfloat16),
    "is": ((5,), torch.bool),
    "none": ((0,), torch.float32),
}


@settings(max_examples=100, deadline=None)
@given(moved(longest=300))
def test_rows_are_moved_and_no_others(given: Moved) -> None:
    from descant.state import rows

    given.check(rows, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 127, 2048, 4097, 94_962, 94_963])
def test_whatever_they_are(dtype: torch.dtype, length: int) -> None:
    from descant.state import rows

    for begins in ((0, 0), (1, 0), (2, 1), (4, 4), (16, 8)):
        Moved(dtype, (length,), 30, [29, 3, 17, 0, 18], *begins).check(rows, "cuda")


def test_many_short_rows_and_nobody() -> None:
    from descant.state import rows

    Moved(torch.float32, (), 100_000, list(range(99_999, 0, -2)), 0, 0).check(rows, "cuda")
    Moved(torch.float32, (3,), 4, [], 0, 0).check(rows, "cuda")


def test_more_words_than_32_bits_can_count() -> None:
    from descant.state import rows

    clients, length = 2**16 + 3, 2**15 + 1  # of one byte each, since the length is odd
    there = torch.empty(clients, length, dtype=torch.uint8, pin_memory=True)
    who = torch.tensor([clients - 1, 0, 2**16 - 1])
    values = torch.randint(0, 256, (3, length), dtype=torch.uint8, device="cuda")
    again = torch.zeros_like(values)
    rows.scatter(values, there, who.cuda())
    rows.gather(there, who.cuda(), again)
    torch.cuda.synchronize()
    assert there[who].equal(values.cpu()) and again.equal(values)


def test_one_program_serves_all_cohorts() -> None:
    from descant.state import rows

    Moved(torch.float32, (1000,), 30, [3, 1], 0, 0).check(rows, "cuda")
    compiled = rows._move.device_caches[torch.cuda.current_device()][0]
    before = len(compiled)
    for clients, who, begins in ((16, range(16), 32), (100, [1], 2), (33, range(32), 0), (1, [0], 8)):
        Moved(torch.float32, (1000,), clients, list(who), begins, 0).check(rows, "cuda")
    assert len(compiled) == before


def allocated(how: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Streams, Tree]:
    """Streams that move rows in one of three ways."""
    streams = Streams(torch.device("cuda"))
    with monkeypatch.context() as patched:
        if how == "processor":
            patched.setitem(sys.modules, "descant.state.rows", None)
            patched.delattr(descant.state, "rows", raising=False)
            with pytest.warns(SlowWarning, match=r"since no kernel can move them \(ModuleNotFoundError: "):
                rows = streams.allocate(N, SPEC)
        else:
            if how == "not pinned":
                patched.setattr(torch, "empty", refused)
            rows = streams.allocate(N, SPEC)
    assert (streams._kernels is not None) == (how == "kernels")
    return streams, rows


_empty = torch.empty


def refused(*shape: int, **more: Any) -> Tensor:
    if more.get("pin_memory"):
        raise RuntimeError("CUDA error: out of memory")
    return _empty(*shape, **more)


def drawn(clients: int) -> Tree:
    return {
        name: torch.randint(0, 2 if dtype == torch.bool else 100, (clients, *shape), device="cuda").to(dtype)
        for name, (shape, dtype) in SPEC.items()
    }


@pytest.mark.parametrize("how", ["kernels", "processor", "not pinned"])
@pytest.mark.parametrize("aside", [True, False])
def test_rows_come_and_go(how: str, aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (streams, rows), chance = allocated(how, monkeypatch), Random(0)
    busy, found = torch.randn(2000, 2000, device="cuda"), list[tuple[Tree, Tree]]()
    plain = drawn(N)
    streams.scatter(plain, torch.arange(N), aside=True)
    for _ in range(40):
        who, then = (torch.tensor(chance.sample(range(N), chance.randint(1, N))) for _ in range(2))
        for _ in range(chance.randint(0, 4)):
            busy = (busy @ busy).tanh()
        new = drawn(len(who))
        for name, leaf in new.items():
            plain[name] = plain[name].index_copy(0, who.cuda(), leaf)
        done = streams.scatter(new, who, aside)
        if not aside:
            for leaf in new.values():
                leaf.zero_()
        taken, came = streams.gather(SPEC, then, done)
        streams.join(taken, came)
        found.append((taken, {name: leaf[then.cuda()] for name, leaf in plain.items()}))
    assert all(taken[name].equal(expected[name]) for taken, expected in found for name in SPEC)
    done.synchronize()
    assert all(rows[name].equal(leaf.cpu()) for name, leaf in plain.items())


def sleep(who: Tensor) -> None:
    """Let the GPU do nothing for a while, with pinned memory for numbers at hand: to pin more might wait for it."""
    at_hand = [torch.empty(len(who), dtype=who.dtype, pin_memory=True) for _ in range(4)]
    torch.cuda.synchronize()
    del at_hand
    torch.cuda._sleep(LONG_ENOUGH)  # type: ignore[no-untyped-call]


def test_nobody_waits_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    (streams, rows), who = allocated("kernels", monkeypatch), torch.tensor([5, 0, 31])
    new = drawn(len(who))
    sleep(who)
    with waiting.refused():
        back: Any = streams.scatter(new, who, aside=True)
        taken, came = streams.gather(SPEC, who, back)
        assert not back.query() and not came.query()  # type: ignore[attr-defined]
        streams.join(taken, came)
    assert all(taken[name].equal(leaf) for name, leaf in new.items())
    assert all(rows[name][who].equal(leaf.cpu()) for name, leaf in new.items())


def test_memory_is_given_back_once_no_row_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    (streams, rows), who = allocated("kernels", monkeypatch), torch.tensor([5, 0, 31])
    new = drawn(len(who))
    sleep(who)
    back: Any = streams.scatter(new, who, aside=True)
    assert not back.query()
    del rows, streams
    assert back.query()
