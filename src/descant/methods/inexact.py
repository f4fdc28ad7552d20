"""Local problems that are descended for a number of steps, or until their gradient is small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from descant.errors import require
from descant.methods.base import Gradient, LocalView, Until
from descant.methods.descent import Descent
from descant.methods.optimizers import Down

Slope = Callable[..., Tensor]  # (x [K, d], grad, *rows) -> the gradient of the local problem


@dataclass(frozen=True, kw_only=True)
class Inexact(Descent):
    """Local gradient descent that a rule may end, after `cap` steps at the latest."""

    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "cap", self.cap >= 1, "a positive number")

    def descend(
        self, slope: Slope, x: Tensor, *rows: Tensor, local: LocalView, role: str, rule: Tensor | None = None
    ) -> Tensor:
        """x descended along `slope` for the work of a round.

        With a `rule` [K] one minibatch is held until the squared norm of the slope is at most that.
        """
        if rule is None:
            return local.run(partial(self._descend, slope), x, *rows, work=self.work, role=role)
        work = replace(self.work, steps=self.cap, epochs=None, hold=True)
        return local.run(partial(self._descend_to, slope), x, rule, *rows, work=work, role=role)

    def _descend(self, slope: Slope, x: Tensor, grad: Gradient, *rows: Tensor) -> Down:
        return self.down(x, slope(x, grad, *rows))

    def _descend_to(self, slope: Slope, x: Tensor, grad: Gradient, rule: Tensor, *rows: Tensor) -> Until:
        g = slope(x, grad, *rows)
        return Until(self.down(x, g), met=g.square().sum(-1) <= rule)
