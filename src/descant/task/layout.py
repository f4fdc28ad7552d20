"""The flat vector of a model: which slice of it is which parameter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Named tensors laid out one after the other in a vector of `dim` numbers, in the module's own order.

    `norms` are the names of those that belong to BatchNorm layers and their relatives with running statistics.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    norms: tuple[str, ...] = ()

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], norms: Collection[str] = ()) -> Layout:
        shapes = tuple(t.shape for t in tensors.values())
        return cls(tuple(tensors), shapes, tuple(name for name in tensors if name in norms))

    @property
    def sizes(self) -> list[int]:
        return [prod(shape) for shape in self.shapes]

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    @property
    def slices(self) -> dict[str, slice]:
        """Where each tensor lies in the vector, for methods that treat layers differently."""
        slices, start = {}, 0
        for name, size in zip(self.names, self.sizes, strict=True):
            slices[name] = slice(start, start + size)
            start += size
        return slices

    @property
    def last(self) -> tuple[str, ...]:
        """The names of the last layer's tensors: those that share all but the end of the last name."""
        layer = self.names[-1].rpartition(".")[0]
        return tuple(name for name in self.names if name.rpartition(".")[0] == layer)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:  # [dim]
        if not self.names:
            return torch.empty(0)
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        # One split instead of many slices: under grad, each slice would write a vector of zeros of its own.
        pieces = torch.split(vector, self.sizes)
        return {n: p.view(s) for n, s, p in zip(self.names, self.shapes, pieces, strict=True)}
