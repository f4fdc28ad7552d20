"""Local training: every client alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.methods.base import Gradient, LocalView, Tree
from descant.methods.descent import Descent
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class Local(Descent):
    """Local training: client k minimises f_k alone, from where it stood. Nothing is sent.

    The comparison that every personalized method has to win, at the same number of gradients.
    """

    name: ClassVar[str] = "local"
    paper: ClassVar[str] = "the baseline of every paper on personalization"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True
    mute: ClassVar[bool] = True

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return {}, {"v": local.run(self.step, state["v"], work=self.work, role="personal")}

    def step(self, v: Tensor, grad: Gradient) -> Down:
        return self.down(v, self.slope(v, grad))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]
