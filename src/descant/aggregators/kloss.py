"""The message of the client whose loss is the largest that an honest one may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.aggregators.base import Aggregator, RecordFigure, unheard
from descant.context import Context
from descant.errors import SettingError, require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class KLoss(Aggregator):
    """k-loss (Ditto, Li et al., 2021, section 4): of S messages the one with the (S - k)-th smallest loss, alone.

    `k` is the number of attackers that is assumed in a cohort. Clients send along the loss of the model that they
    begin the round with, on their training data: 4 more bytes, or 8, which an attacker can forge too.
    """

    name: ClassVar[str] = "k-loss"
    weighs: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("loss",)

    k: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "k", self.k >= 0, "zero or more")

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> Tree:
        raise SettingError("the aggregator 'k-loss' needs the clients' losses: it combines mail, not leaves alone")

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        loss = mail.facts["loss"]
        chosen = loss.nan_to_num(nan=float("inf")).argsort(stable=True)[max(0, len(loss) - self.k - 1)]
        return state, {name: leaf[chosen] for name, leaf in mail.items()}
