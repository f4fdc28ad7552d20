"""The trimmed mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.aggregators.assumed import Assuming
from descant.aggregators.base import RecordFigure, unheard
from descant.aggregators.before import rows_of
from descant.coupling.columns import by_columns, ordered


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Assuming):
    """The mean of every coordinate without its f largest and its f smallest values (Yin et al., 2018).

    It survives f attackers of 2f + 1 messages. Weights that senders claim are not used.
    """

    name: ClassVar[str] = "trimmed-mean"
    weighs: ClassVar[bool] = False

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        return {name: self.trim(leaf) for name, leaf in leaves.items()}

    def trim(self, leaf: Tensor) -> Tensor:
        """The rows [S, ...] without their extremes, one of which is what is no number."""
        f = self.attackers(len(leaf))
        kept = slice(f, len(leaf) - f)
        return by_columns(rows_of(leaf), lambda block: ordered(block)[kept].mean(0)).view(leaf.shape[1:])
