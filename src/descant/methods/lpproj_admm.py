"""lp-proj-2 by ADMM: FLAME in a random subspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from torch import Tensor

from descant.context import Context
from descant.coupling import Dense, Projection, Projector
from descant.methods.base import Gradient, LocalView, Method, ServerView, Tree
from descant.methods.flame import FLAME
from descant.methods.subspace import check_subspace, check_tie
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class LpProjADMM(FLAME):
    """ADMM-based lp-proj-2 (Zhu et al., 2024), Algorithm 2: min sum_i alpha_i (f_i(x) + lam/2 ||w - P x||^2).

    FLAME's lines with P theta_i in the place of theta_i (185-188). P is a `dim` x d random matrix that every party
    derives from the seed. `projection` is the kind of P. Sends u_i, `dim` numbers; there is no shared model, only
    the reference w. As in lp-proj, w and w_i start at zero, so that Lemma 3 holds once a client has taken part.
    P = I is FLAME.
    """

    name: ClassVar[str] = "lp-proj-admm"
    has_shared: ClassVar[bool] = False

    dim: int = 21
    projection: Projection = field(default_factory=Dense)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tie(self)

    def check_run(self, rounds: int, layout: Layout) -> None:
        super().check_run(rounds, layout)
        check_subspace(self, layout)

    def first_sent(self, ctx: Context) -> Tree:
        return {"u": ctx.x0.new_zeros(self.projection.dim(self.dim, len(ctx.x0)))}

    def client_start(self, local: LocalView) -> Tree:
        x = local.start
        zero = x.new_zeros(len(x), self.projection.dim(self.dim, x.shape[1]))
        return {"theta": x, "w_i": zero, "pi": zero} | self.first_eps(x)

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        alpha, anchor, theta = self.alpha(down, local), self.anchor(down, state), state["theta"]
        P = self.projection.drawn(local.ctx, self.dim, theta)
        slope = partial(self.slope_of_185, P)
        theta, eps = self.solve(slope, theta, anchor, alpha=alpha, state=state, local=local, role="personal")
        message, tied = self.agree(P.project(theta), alpha, down, state, local)
        return message, {"theta": theta} | tied | eps

    def slope_of_185(self, P: Projector, theta: Tensor, grad: Gradient, w_i: Tensor) -> Tensor:
        """The gradient of (185) in theta, divided by alpha_i: line 12."""
        return self.slope(theta, grad) + self.lam * P.lift(P.project(theta) - w_i)

    def shared(self, server: ServerView) -> Tensor:
        return Method.shared(self, server)
