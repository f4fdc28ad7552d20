"""The medians of the messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.aggregators.base import Aggregator, RecordFigure, unheard
from descant.coupling import L1Norm, L2Norm, Penalty, Stop
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class _Median(Aggregator):
    """argmin_w sum_k p_k psi(u_k - w), leaf by leaf, with p_k = n_k / n where the messages carry weights n_k.

    `delta` smooths the norm psi by its Moreau envelope (Fed+, eq. 7); at 0 the median is exact. It is solved up to
    a residual (the norm of the objective's least subgradient) of `tol`, or for `cap` iterations; what was left and
    what it took are reported, summed over the leaves.
    """

    psi: ClassVar[Penalty]

    delta: float = 0.0
    tol: float = 1e-10
    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "delta", 0 <= self.delta < float("inf"), "zero or more")
        require(self, "tol", self.tol > 0, "a positive number")
        require(self, "cap", self.cap >= 1, "a positive number")

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        combined = {}
        for name, leaf in leaves.items():
            p = torch.ones(len(leaf), device=leaf.device) if weights is None else weights
            center = self.psi.center(leaf.reshape(len(leaf), -1), p, self.delta, Stop(self.tol, self.cap))
            record("aggregation_residual", center.residual)
            record("aggregation_iterations", center.iterations)
            combined[name] = center.w.view(leaf.shape[1:]).to(leaf.dtype)
        return combined


@dataclass(frozen=True, kw_only=True)
class CoordinateMedian(_Median):
    """The median of every coordinate (Yin et al., 2018); of an even number, the middle of the two.

    With `convention="lp-proj"` it is the lower of the two, without weights, as in the code of lp-proj.
    """

    name: ClassVar[str] = "coordinate-median"
    psi: ClassVar[Penalty] = L1Norm()

    convention: Literal["paper", "lp-proj"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.convention in ("paper", "lp-proj")
        require(self, "convention", known, "'paper' or 'lp-proj'")
        require(self, "convention", self.convention == "paper" or not self.delta, "'paper' where delta smooths it")

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        if self.convention == "paper":
            return super().__call__(leaves, weights, record)
        return {name: leaf.median(0).values for name, leaf in leaves.items()}


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(_Median):
    """The point with the least sum of distances to the messages (RFA, Pillutla et al., 2019)."""

    name: ClassVar[str] = "geometric-median"
    psi: ClassVar[Penalty] = L2Norm()
