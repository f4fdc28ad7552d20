"""The lower level of the bilevel methods: min_x f_k(x) + lam g(w - x) for a fixed reference w."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from descant.errors import require
from descant.methods.base import Gradient, LocalView, Until, Work
from descant.methods.descent import Descent

Slope = Callable[[Tensor, Gradient, Tensor], Tensor]  # (x [K, d], grad, w) -> the gradient of the lower level


def role_of(r: int) -> str:
    """The role of alternation r: the first sees the minibatches of Local, so that without a penalty it is Local."""
    return f"personal/{r}" if r else "personal"


@dataclass(frozen=True, kw_only=True)
class Bilevel(Descent):
    """The fields of the lower level.

    By default it is descended for 20 steps, each on a fresh minibatch, which is what the authors' codes do. With
    `nu`, as the papers write it, one minibatch is held and descended until the squared norm of the gradient is at
    most nu, or for `cap` steps; how many clients were capped is reported (at p = 1 a subgradient never vanishes).
    """

    default_work: ClassVar[Work] = Work(steps=20)

    nu: float | None = None
    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "nu", self.nu is None or self.nu > 0, "a positive number, or nothing")
        require(self, "cap", self.cap >= 1, "a positive number")
        require(self, "nu", self.nu is None or self.steps is self.epochs is None, "nothing where steps are given")

    def minimise(self, slope: Slope, x: Tensor, w: Tensor, local: LocalView, role: str) -> Tensor:
        if self.nu is None:
            return local.run(partial(self._descend, slope), x, w, work=self.work, role=role)
        work = Work(steps=self.cap, batch=self.batch, hold=True)
        return local.run(partial(self._descend_to_nu, slope), x, w, work=work, role=role)

    def _descend(self, slope: Slope, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        return x - self.lr * slope(x, grad, w)

    def _descend_to_nu(self, slope: Slope, x: Tensor, grad: Gradient, w: Tensor) -> Until:
        g = slope(x, grad, w)
        assert self.nu is not None
        return Until(x - self.lr * g, met=g.square().sum(-1) <= self.nu)
