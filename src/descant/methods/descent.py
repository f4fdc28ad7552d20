"""Local gradient descent, which most methods share: how far, on what minibatches, with which guard rails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from descant.errors import SettingError, require
from descant.methods.base import Gradient, Method, Work, clip_norm
from descant.methods.schedules import ByRound


@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """The fields of local gradient descent.

    `lr` is the learning rate. The work of a round is `steps`, or `epochs` over the local data, on minibatches of
    `batch` examples (None: all local data; the size may depend on the round). `clip` bounds the L2 norm of the
    loss's gradient and `weight_decay` adds its multiple of x; both come before the pull towards a reference.
    `momentum` adds its multiple of the last move to each step, from rest whenever local work begins.
    """

    default_work: ClassVar[Work] = Work(epochs=1)

    lr: float = 0.1
    steps: int | None = None
    epochs: int | None = None
    batch: int | ByRound | None = 64
    clip: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        require(self, "lr", self.lr > 0, "a positive number")
        if self.steps is not None and self.epochs is not None:
            raise SettingError(f"{type(self).__name__} has both steps and epochs: give one of them")
        for field in ("steps", "epochs", "batch"):
            value = getattr(self, field)
            scheduled = field == "batch" and isinstance(value, ByRound)
            allowed = value is None or scheduled or (isinstance(value, int) and value >= 1)
            require(self, field, allowed, "a positive number, or nothing")
        require(self, "clip", self.clip is None or self.clip > 0, "a positive number, or nothing")
        require(self, "weight_decay", self.weight_decay >= 0, "zero or more")
        require(self, "momentum", 0 <= self.momentum < 1, "from 0 to below 1")

    @property
    def work(self) -> Work:
        if self.steps is None and self.epochs is None:
            return replace(self.default_work, batch=self.batch, momentum=self.momentum)
        return Work(self.steps, self.epochs, self.batch, momentum=self.momentum)

    def slope(self, x: Tensor, grad: Gradient) -> Tensor:
        """The gradient of the clients' loss at x [K, d], clipped, with weight decay."""
        g = grad(x)
        if self.clip is not None:
            g = clip_norm(g, self.clip)
        return g + self.weight_decay * x if self.weight_decay else g
