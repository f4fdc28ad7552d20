"""Projections that act on parts of a model, each on its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from descant.coupling.projections.base import Projector

Span = tuple[int, int]  # from, to


@dataclass(frozen=True)
class DirectSum(Projector):
    """P_1 on the coordinates of part 1, P_2 on those of part 2, and so on, and their results one after the other.

    `where` are the spans of d that a part consists of. Coordinates of no part are projected to nothing.
    """

    parts: tuple[Projector, ...]
    where: tuple[tuple[Span, ...], ...]

    def project(self, x: Tensor) -> Tensor:
        if not self.parts:
            return x.new_empty(len(x), 0)
        return torch.cat([P.project(_taken(x, spans)) for P, spans in zip(self.parts, self.where, strict=True)], 1)

    def lift(self, c: Tensor) -> Tensor:
        x = c.new_zeros(len(c), self.d)
        pieces = torch.split(c, [P.dim for P in self.parts], 1) if self.parts else ()
        for P, spans, piece in zip(self.parts, self.where, pieces, strict=True):
            lifted = torch.split(P.lift(piece), [end - begin for begin, end in spans], 1)
            for (begin, end), values in zip(spans, lifted, strict=True):
                x[:, begin:end] = values
        return x


def _taken(x: Tensor, spans: tuple[Span, ...]) -> Tensor:
    found = [x[:, begin:end] for begin, end in spans]
    return found[0] if len(found) == 1 else torch.cat(found, 1)
