"""Rows to move by the kernel of `descant.state.rows`, and what must become of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import ModuleType

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = [
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool),
]
_BEHIND = 5  # numbers behind the rows, and behind the values


@dataclass(frozen=True)
class Moved:
    """Rows of some of `clients` clients."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    clients: int
    who: list[int]
    rows_begin: int  # so many numbers after where memory is aligned
    values_begin: int

    def check(self, kernels: ModuleType, device: str) -> None:
        """Hold rows that are moved both ways against torch, with all that lies around them."""
        who = torch.tensor(self.who, dtype=torch.int64)
        for back in (False, True):
            memory, there = self._numbers(self.clients, self.rows_begin), self._numbers(len(who), self.values_begin)
            expected, moved = (memory.clone(), there.clone()), (memory, there.to(device))
            if device != "cpu":
                moved = (memory.pin_memory(), moved[1])
            (plain, copies), (rows, values) = self._rows(*expected), self._rows(*moved)
            if back:
                plain[who] = copies
                kernels.scatter(values, rows, who.to(device))
            else:
                copies[:] = plain[who]
                kernels.gather(rows, who.to(device), values)
            if device != "cpu":
                torch.cuda.synchronize()
            assert all(each.cpu().equal(other) for each, other in zip(moved, expected, strict=True))

    def _numbers(self, rows: int, begin: int) -> Tensor:
        """Memory with room for so many rows, and some around them."""
        size = begin + rows * prod(self.shape) + _BEHIND
        drawn = torch.randint(0, 2 if self.dtype == torch.bool else 100, (size,))
        return drawn.to(self.dtype)

    def _rows(self, memory: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """The rows and the values in memory."""
        sizes = ((memory, self.clients, self.rows_begin), (there, len(self.who), self.values_begin))
        one, other = (
            each[begin:][: rows * prod(self.shape)].view(rows, *self.shape) for each, rows, begin in sizes
        )
        return one, other


@st.composite
def moved(draw: st.DrawFn, longest: int) -> Moved:
    shape = draw(
        st.one_of(st.just(()), st.tuples(st.integers(1, longest)), st.tuples(st.integers(1, 9), st.just(7)))
    )
    clients = draw(st.integers(1, 40))
    who = draw(st.lists(st.integers(0, clients - 1), unique=True))
    begins = draw(st.tuples(st.integers(0, 40), st.integers(0, 3)))
    return Moved(draw(st.sampled_from(DTYPES)), shape, clients, who, *begins)
