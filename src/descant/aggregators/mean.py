"""The mean of the messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.aggregators.base import Aggregator, RecordFigure, unheard


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregator):
    """sum_k p_k u_k, with p_k = n_k / n where the messages carry weights n_k, and 1/S otherwise."""

    name: ClassVar[str] = "mean"
    needs: ClassVar[Literal["sums", "rows"]] = "sums"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        return {name: self._mean(leaf, weights) for name, leaf in leaves.items()}

    def _mean(self, leaf: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            return leaf.mean(0)
        p = weights.to(leaf.dtype)
        mean: Tensor = torch.tensordot(p / p.sum(), leaf, dims=1)
        return mean
