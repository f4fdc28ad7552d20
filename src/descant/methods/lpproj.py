"""lp-proj: personal models tied to a reference in a random subspace, by an L^p penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.coupling import Dense, Projection, Projector
from descant.errors import require
from descant.methods.base import Gradient, LocalView, Tree, signed_power
from descant.methods.bilevel import Bilevel, role_of
from descant.methods.schedules import in_round
from descant.methods.subspace import check_subspace, check_tie
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class LpProj(Bilevel):
    """lp-proj (Lin et al., 2022 and 2024), Algorithm 1: min_w mean_k min_x f_k(x) + lam/p ||w - P x||_p^p.

    P is a `dim` x d random matrix that every party derives from the seed. `projection` is the kind of P. `p` is
    the exponent of the tie, 1 or more. Sends w_k, `dim` numbers; there is no shared model, only the reference w. P
    = I is pFedMe at p = 2 and RSA at p = 1.

    A reference that has overflowed is a collapse. With `overflow="local"`, at p = 1, one that is not a number no
    longer pulls, and clients go on alone: so does the authors' code, where sign(NaN) is 0. The messages are not
    finite either then, and only nonfinite="keep" lets them through.
    """

    name: ClassVar[str] = "lp-proj"
    paper: ClassVar[str] = "Lin et al. 2024, A Random Projection Approach to Personalized Federated Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    p: float = 1.0
    dim: int = 21
    projection: Projection = field(default_factory=Dense)
    overflow: Literal["collapse", "local"] = "collapse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "p", self.p >= 1, "1 or more")
        check_tie(self)
        require(self, "overflow", self.overflow in ("collapse", "local"), "'collapse' or 'local'")
        require(self, "overflow", self.overflow == "collapse" or self.p == 1, "'collapse' unless p = 1")

    def check_run(self, rounds: int, layout: Layout) -> None:
        super().check_run(rounds, layout)
        check_subspace(self, layout)

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0.new_zeros(self.projection.dim(self.dim, len(ctx.x0)))}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        x, w, eta = state["x"], down["w"], in_round(self.eta, local.round)
        P = self.projection.drawn(local.ctx, self.dim, x)
        for r in range(self.R):
            x = self.minimise(partial(self.slope_of_3, P), x, w, local, role=role_of(r))
            w = w - eta * self.lam * self.pull(w - P.project(x))  # eq. (4)
        return self.message(w, local), {"x": x}

    def slope_of_3(self, P: Projector, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        """The gradient of eq. (3) in x."""
        return self.slope(x, grad) - self.lam * P.lift(self.pull(w - P.project(x)))

    def pull(self, c: Tensor) -> Tensor:
        """The derivative of ||c||_p^p / p, for c = w - P x."""
        slope = signed_power(c, self.p - 1)
        return slope.nan_to_num(nan=0.0) if self.overflow == "local" else slope

    @property
    def unbounded(self) -> tuple[str, ...]:
        return ("w",) if self.overflow == "local" else ()
