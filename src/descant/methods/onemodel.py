"""What the methods with one model for all share: it travels down, is trained by the clients, and moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import Sent, difference
from descant.methods.base import Gradient, LocalView, PerClient, ServerView, Tree
from descant.methods.descent import Descent
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class OneModel(Descent):
    """The fields of methods with one model w for all, which clients train from where it is.

    `stragglers` says what becomes of the partial work of a straggler: "drop", as FedAvg does in the comparisons of
    FedProx, or "keep".
    """

    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False

    stragglers: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "stragglers", self.stragglers in ("drop", "keep"), "'drop' or 'keep'")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def update(self, down: Tree, local: LocalView) -> Tensor:
        """w_k - w [K, d] after the work of a round."""
        return local.run(self.step, down["w"], down["w"], work=self.work, role="shared") - down["w"]

    def step(self, x: Tensor, grad: Gradient, w: Tensor) -> Down:
        return self.down(x, self.slope(x, grad))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"delta": difference(of="w")}

    @property
    def drops_stragglers(self) -> bool:
        return self.stragglers == "drop"
