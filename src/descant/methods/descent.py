"""Local gradient descent, which most methods share: how far, on what minibatches, with which guard rails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from descant.errors import SettingError, require
from descant.methods.base import Gradient, Method, Work, clip_norm
from descant.methods.optimizers import PLAIN, SGD, Down, Optimizer
from descant.methods.schedules import ByRound, in_round


@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """The fields of local gradient descent.

    `lr` is the learning rate. The work of a round is `steps`, or `epochs` over the local data, on minibatches of
    `batch` examples (None: all local data). `lr` and `batch` may depend on the round. `clip` bounds the L2 norm of
    the loss's gradient and `weight_decay` adds its multiple of x; both come before the pull towards a reference.
    `optimizer` makes the moves, from rest whenever local work begins, and `momentum` is short for the one of that
    name: it adds its multiple of the last move to each.
    """

    default_work: ClassVar[Work] = Work(epochs=1)
    fewest: ClassVar[int] = 1  # steps

    lr: float | ByRound = 0.1
    steps: int | None = None
    epochs: int | None = None
    batch: int | ByRound | None = 64
    clip: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.0
    optimizer: Optimizer = PLAIN

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lr", isinstance(self.lr, ByRound) or self.lr > 0, "a positive number")
        if self.steps is not None and self.epochs is not None:
            raise SettingError(f"{type(self).__name__} has both steps and epochs: give one of them")
        for field in ("steps", "epochs", "batch"):
            value = getattr(self, field)
            scheduled = field == "batch" and isinstance(value, ByRound)
            least = self.fewest if field == "steps" else 1
            allowed = value is None or scheduled or value >= least
            require(self, field, allowed, f"{'a positive number' if least else 'zero or more'}, or nothing")
        require(self, "clip", self.clip is None or self.clip > 0, "a positive number, or nothing")
        require(self, "weight_decay", self.weight_decay >= 0, "zero or more")
        require(self, "momentum", 0 <= self.momentum < 1, "from 0 to below 1")
        one = not self.momentum or type(self.optimizer) is SGD
        require(self, "momentum", one, "zero where another optimizer than sgd is given")

    @property
    def work(self) -> Work:
        work = Work(self.steps, self.epochs)
        if self.steps is None and self.epochs is None:
            work = self.default_work
        return replace(work, batch=self.batch, momentum=self.momentum, optimizer=self.optimizer, lr=self.lr)

    def down(self, x: Tensor, slope: Tensor) -> Down:
        """A step from x [K, d] down a slope: x - rate slope."""
        return Down(x - self.rate * slope, slope, self.rate)

    @property
    def rate(self) -> float:
        """The rate to write a step with: `lr` or, where that depends on the round, the first one's (see `Work`)."""
        return in_round(self.lr, 1)

    def slope(self, x: Tensor, grad: Gradient) -> Tensor:
        """The gradient of the clients' loss at x [K, d], clipped, with weight decay."""
        return self.guarded(x, grad(x))

    def guarded(self, x: Tensor, g: Tensor) -> Tensor:
        """A gradient g [K, d] that was found elsewhere, clipped, with weight decay at x."""
        if self.clip is not None:
            g = clip_norm(g, self.clip)
        return g + self.weight_decay * x if self.weight_decay else g
