"""How much local work clients are to do, and what they have done."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from torch import Tensor

from descant.methods.optimizers import PLAIN, SGD, Momentum, Optimizer
from descant.methods.schedules import ByRound


@dataclass(frozen=True)
class Work:
    """How much local work: `steps`, or `epochs` over the local data, on minibatches of `batch` examples.

    `batch=None` takes all local data at each step; one that depends on the round is rounded up. `hold` keeps the
    first minibatch for all steps. `optimizer` makes moves of what the steps propose, and `momentum` stands for the
    one of that name. `lr` is the rate that the steps are written with, which Adam must know; where it depends on
    the round, they are written with the first round's, and moves are scaled to the round's.
    """

    steps: int | None = None
    epochs: int | None = None
    batch: int | ByRound | None = None
    hold: bool = False
    momentum: float = 0.0
    optimizer: Optimizer = PLAIN
    lr: float | ByRound | None = None

    @property
    def by(self) -> Optimizer:
        """What makes the moves."""
        return Momentum(beta=self.momentum) if self.momentum else self.optimizer

    @property
    def plain(self) -> bool:
        """Whether the moves are what the steps propose."""
        return type(self.by) is SGD and not isinstance(self.lr, ByRound)

    def batch_in(self, round: int) -> int | None:
        """The size of a minibatch in a round."""
        if isinstance(self.batch, ByRound):  # without the last digits, lest 3.0000000000000004 becomes 4
            return max(1, ceil(float(f"{self.batch.at(round):.12g}")))
        return self.batch


class Taken(NamedTuple):
    """The local work that K clients have done."""

    steps: Tensor  # [K] steps that moved x; one that only found a rule met (`Until`) is none
    examples: Tensor  # [K] examples in the minibatches of these steps
    finished: Tensor  # [K] bool: whether all the steps that were asked for were taken, or the rule was met
