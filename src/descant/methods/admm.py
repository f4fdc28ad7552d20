"""What the methods by ADMM share: local models that agree on w, their duals, and the inexact local solution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import LAST, Sent, position
from descant.methods.base import Aggregate, LocalView, Messages, PerClient, ServerView, Tree
from descant.methods.inexact import Inexact, Slope
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class ADMM(Inexact):
    """The fields of the ADMM methods: min sum_i alpha_i F_i(w_i) such that w_i = w, with duals pi_i.

    `rho` is the penalty parameter. The server keeps the last u_i = w_i + pi_i / rho of all m clients and
    aggregates them to w, however few took part in a round. `dual=False` keeps pi_i = 0: an inexact penalty method.

    alpha_i is 1/m or, if `weighted`, n_i/n. With `weighted`, a client sends n_i along with u_i, and the server
    broadcasts n. It counts a client that it has not heard from as having the mean number of examples of the
    others; in the first round it has heard from nobody, and alpha_i is 1/m. Only the ratio alpha_i / rho matters,
    so that an n that is c times too large acts as a rho that is c times too large.

    The work of a round is `epochs` (H passes) or `steps`. With `eps` there is one minibatch a round, which is
    descended until ||alpha_i g||^2 <= eps_i, where g is the gradient of the local problem, or for `cap` steps.
    eps_i is `eps` at first, and is multiplied by `upsilon` whenever the client takes part. The run reports how
    many clients were capped.
    """

    rho: float = 0.1
    weighted: bool = False
    dual: bool = True
    eps: float | None = None
    upsilon: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dual:
            require(self, "rho", self.rho > 0, "a positive number")
        require(self, "rho", self.rho >= 0, "zero or more")
        require(self, "eps", self.eps is None or self.eps > 0, "a positive number, or nothing")
        require(self, "eps", self.eps is None or self.steps is self.epochs is None, "nothing where steps are given")
        require(self, "upsilon", 0 < self.upsilon < 1, "between 0 and 1")

    def check_run(self, rounds: int, layout: Layout) -> None:
        for field in ("cap", "upsilon"):
            default = getattr(type(self), field)
            heeded = self.eps is not None or getattr(self, field) == default
            require(self, field, heeded, f"{default}, its default, unless eps is given")

    def first_sent(self, ctx: Context) -> Tree:
        return {"u": ctx.x0}

    def server_start(self, ctx: Context) -> Tree:
        """The server before the first round, when w and all u_i are the same."""
        w, m = self.first_sent(ctx)["u"], ctx.clients
        sizes = {"n": torch.zeros(m, dtype=torch.int32, device=w.device)} if self.weighted else {}
        return {"w": w, "u": w.repeat(m, 1)} | sizes

    def first_eps(self, x: Tensor) -> Tree:
        return {} if self.eps is None else {"eps": x.new_full((len(x),), self.eps)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        w, m = server["w"], server.ctx.clients
        if not self.weighted:
            return {"w": w}
        heard = server["n"] > 0
        return {"w": w, "n": (server["n"].sum().double() * m / heard.sum().clamp(min=1)).to(w.dtype)}

    def alpha(self, down: Tree, local: LocalView) -> Tensor:
        """The weights [K, 1] of the clients' losses, as far as they know."""
        alpha = down["w"].new_full((len(local.n),), 1 / local.ctx.clients)
        if self.weighted:
            alpha = torch.where(down["n"] > 0, local.n / down["n"], alpha)
        return alpha[:, None]

    def solve(
        self, slope: Slope, theta: Tensor, *rows: Tensor, alpha: Tensor, state: Tree, local: LocalView, role: str
    ) -> tuple[Tensor, Tree]:
        """The local problem, descended in theta: the new theta, and eps_i where there is one."""
        if self.eps is None:
            return self.descend(slope, theta, *rows, local=local, role=role), {}
        eps = self.upsilon * state["eps"]
        rule = eps / alpha.squeeze(1).square()
        return self.descend(slope, theta, *rows, local=local, role=role, rule=rule), {"eps": eps}

    def step_dual(self, w_i: Tensor, w: Tensor, pi: Tensor) -> Tensor:
        return pi + self.rho * (w_i - w) if self.dual else pi

    def message(self, w_i: Tensor, pi: Tensor, local: LocalView) -> Tree:
        u = w_i + pi / self.rho if self.dual else w_i
        return {"u": u} | ({"n": local.n.to(torch.int32)} if self.weighted else {})

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        held = {name: messages.into(server[name], name) for name in self.held}
        return {"w": aggregate({"u": held["u"]})["u"]} | held

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"u": position(since=LAST, beside="w")}

    @property
    def refuses(self) -> Mapping[str, str]:
        return {
            "own_start": "the server takes clients that it has not heard to hold the common start",
            "trainers": "client and server must agree on the last u_i, so that only those who send may train",
        }

    @property
    def held(self) -> tuple[str, ...]:
        return ("u", "n") if self.weighted else ("u",)
