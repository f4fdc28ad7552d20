"""Clipping around a centre."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.aggregators.base import Aggregator, RecordFigure, unheard
from descant.context import Context
from descant.coupling.distances import norms
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class CenteredClipping(Aggregator):
    """Centered clipping (Karimireddy et al., 2021), eq. 2: v <- v + sum_k p_k (u_k - v) min(1, tau / ||u_k - v||).

    Repeated `iterations` times, leaf by leaf; p_k = n_k / n where the messages carry weights n_k, and 1/S
    otherwise. v starts at what the last round's aggregate was; in the first round at what the messages moved away
    from, which is zero for differences, or at zero where they do not say. In an iteration no message
    moves v by more than p_k tau.
    """

    name: ClassVar[str] = "centered-clipping"
    updates: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    tau: float = 10.0
    iterations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "tau", self.tau > 0, "a positive number")
        require(self, "iterations", self.iterations >= 1, "a positive number")

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> Tree:
        return {name: self.clip(leaf, torch.zeros_like(leaf[0]), weights) for name, leaf in leaves.items()}

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        combined = {}
        for name, leaf in mail.items():
            first = mail.references.get(name, torch.zeros_like(leaf[:1])).to(leaf.dtype).mean(0)
            combined[name] = self.clip(leaf, state.get(name, first.expand(leaf.shape[1:])), mail.weights)
        return state | combined, combined

    def clip(self, u: Tensor, v: Tensor, weights: Tensor | None) -> Tensor:
        """The rows u [S, ...] combined around v [...]."""
        p = torch.ones(len(u), dtype=u.dtype, device=u.device) if weights is None else weights.to(u.dtype)
        p = p / p.sum()
        for _ in range(self.iterations):
            off = (u - v).reshape(len(u), -1)
            norm = norms(off).to(off.dtype)
            v = v + torch.tensordot(p * (self.tau / norm.clamp(min=self.tau)), off, dims=1).view(v.shape)
        return v
