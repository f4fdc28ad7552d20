"""pFed1BS and pFedLMS: personal models that agree on the signs, or on the intervals, of a random sketch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from statistics import NormalDist
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling import Form, Hadamard, PerLayer, Projection, Projector
from descant.errors import require
from descant.mail import Sent, difference
from descant.methods.base import (
    Aggregate,
    Gradient,
    LocalView,
    Messages,
    PerClient,
    Rounding,
    ServerView,
    Tree,
    Work,
)
from descant.methods.descent import Descent
from descant.methods.optimizers import Down
from descant.methods.subspace import asked, check_dim, check_fit
from descant.rounding import packed, unpacked
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class PFed1BS(Descent):
    """pFed1BS (Cheng et al., 2025), Algorithm 1: one-bit sketches of the models, both ways.

    Client k descends f_k(x) + lam (h(P x) - <v, P x>) + mu/2 ||x||^2, with h(z) = sum_i log cosh(gamma z_i) / gamma
    and so the slope lam P'(tanh(gamma P x) - v) of the tie: `lam` weighs it, `gamma` says how steep it is at zero,
    and `mu` draws x to zero. It sends sign(P x), a bit a number, and the server says
    v = sign(sum_k n_k sign(P x_k)), a bit a number. P is sqrt(d / m) times a `projection` to `m` rows; `m`
    below 1 is a share of d. There is no shared model. Before the server has heard anybody, v is 0.

    Read from summaries of the paper; lam, mu, gamma and `m` by default are those of a public implementation by
    others. In a round after one without mail v is 0, too.
    """

    name: ClassVar[str] = "pfed1bs"
    paper: ClassVar[str] = "Cheng et al. 2025, Personalized Federated Learning via One-Bit Random Sketching"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True
    default_work: ClassVar[Work] = Work(steps=20)

    m: int | float = 0.1
    lam: float = 5e-4
    mu: float = 1e-5
    gamma: float = 1e4
    projection: Projection = field(default_factory=Hadamard)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dim(self)
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "mu", self.mu >= 0, "zero or more")
        require(self, "gamma", self.gamma > 0, "a positive number")

    def check_run(self, rounds: int, layout: Layout) -> None:
        check_fit(self, layout)

    @property
    def intervals(self) -> int:
        """How many intervals a number of the sketch is told by: two, below and above zero."""
        return 2

    @property
    def bits(self) -> int:
        return ceil(log2(self.intervals))

    def sketch(self, ctx: Context, round: int, x: Tensor) -> Projector:
        return self.projection.drawn(ctx.at(round), asked(self.m, x.shape[-1]), x)

    def scale(self, P: Projector) -> float:
        """What makes the rows of P as long as those of the papers' sketch."""
        return float((P.d / P.dim) ** 0.5)

    def thresholds(self, ctx: Context, P: Projector) -> Tensor:
        """What parts the intervals [T, m], from the least to the greatest; all parties know them."""
        return ctx.x0.new_zeros(1, P.dim)

    def server_start(self, ctx: Context) -> Tree:
        nobody = torch.zeros(1, self.projection.dim(asked(self.m, len(ctx.x0)), len(ctx.x0)), dtype=torch.int64)
        said = packed(nobody.to(ctx.x0.device), self.bits)[0]
        return {"said": said, "round": torch.zeros_like(ctx.x0[0], dtype=torch.int64)}

    def client_start(self, local: LocalView) -> Tree:
        return {"x": local.start}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        m = self.projection.dim(asked(self.m, len(server.ctx.x0)), len(server.ctx.x0))
        return {"said": server["said"], "middle": server.ctx.x0.new_zeros(m)}

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        return {"middle": torch.zeros_like(local.n)}  # where z is measured from

    def silent(self, server: ServerView) -> bool | Literal["up", "down"]:
        """Whether there is nothing to say of the last round."""
        return "down" if int(server["round"]) < server.ctx.round - 1 or server.ctx.round == 1 else False

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        x, ctx = state["x"], local.ctx
        P = self.sketch(ctx, max(1, local.round - 1), x)  # that of the round that v is of
        parts = self.thresholds(ctx, P)
        v = torch.zeros_like(parts)
        if "said" in down:
            interval = unpacked(down["said"][:1], self.bits, P.dim)  # the same for all
            v = torch.where(interval > torch.arange(len(parts), device=x.device)[:, None], 1.0, -1.0).to(x.dtype)
        rows = (parts.expand(len(x), -1, -1), v.expand(len(x), -1, -1), *P.rows(len(x)))
        x = local.run(partial(self.step, P.form), x, *rows, work=self.work, role="personal")
        P = self.sketch(ctx, local.round, x)
        above = (self.scale(P) * P.project(x))[:, None] >= self.thresholds(ctx, P)
        return {"z": above.sum(1).to(x.dtype) - self.centre, "n": local.n.to(torch.int32)}, {"x": x}

    @property
    def centre(self) -> float:
        """Half of the last interval's number. A message holds numbers of intervals less that: -1/2, 1/2 of two."""
        return ((1 << self.bits) - 1) / 2

    def step(self, form: Form, x: Tensor, grad: Gradient, parts: Tensor, v: Tensor, *rows: Tensor) -> Down:
        """A step down f_k and the tie: its slope is P' sum_t (tanh(gamma (P x - T_t)) - v_t)."""
        P = form.of(rows)
        a = self.scale(P)
        above = torch.tanh(self.gamma * ((a * P.project(x))[:, None] - parts))  # [K, T, m]
        tie = a * P.lift((above - v).sum(1))
        return self.down(x, self.slope(x, grad) + self.lam * tie + self.mu * x)

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        """The interval on whose lower threshold the weighted majority stands, or above it."""
        thresholds = torch.arange(self.intervals - 1, device=messages["z"].device)[:, None]
        votes = (messages["z"] + self.centre)[:, None] - thresholds - 0.5  # [S, T, m], above zero for above
        sided = torch.where(votes >= 0, 1.0, -1.0).to(messages["z"].dtype)
        v = aggregate({"z": sided}, weights=messages["n"])["z"]  # [T, m]
        tie = len(sided) * torch.finfo(v.dtype).eps  # which rounding may have put on either side of zero
        said = packed((v >= -tie).sum(0)[None], self.bits)[0]
        return {"said": said, "round": torch.full_like(server["round"], server.ctx.round)}

    @property
    def turns(self) -> bool:
        return self.projection.fresh

    @property
    def refuses(self) -> Mapping[str, str]:
        votes = "its messages are votes, and what a codec leaves out or changes would be votes, too"
        said = "what the server says is of the round before, and of its sketch"
        bits = "the server says bits, as few as they can be: leave it native"
        return {"codec": votes, "downlink": bits, "newcomers": said}

    @property
    def rounding(self) -> Rounding | None:
        return Rounding(self.bits, span=self.centre)

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"z": difference(of="middle")}

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "rows"

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]


@dataclass(frozen=True, kw_only=True)
class PFedLMS(PFed1BS):
    """pFedLMS (Zhang et al., 2026): sketches of each layer by several thresholds, both ways, drawn anew each round.

    A layer has a sketch of its own, and each number of it is told by the interval it lies in, of those that
    T = `levels` thresholds make: log2(T + 1) bits. The server says, threshold by threshold, on which side the
    majority stands; as thresholds rise, that is an interval again. The tie of pFed1BS is summed over thresholds,
    with P x - T_t in the place of P x.

    Read from a summary of the paper, which has T = 7 and thresholds at quantiles of a normal distribution. Guesses:
    its deviation is that of the layer's sketch of the model all start from, layers share `m` by their sizes, as
    the `projection` per-layer has it, and `lam`, `mu` and `gamma` are pFed1BS's.
    """

    name: ClassVar[str] = "pfedlms"
    paper: ClassVar[str] = "Zhang et al. 2026, Layer-Wise Multi-Threshold Random Sketching"

    levels: int = 7
    projection: Projection = field(default_factory=lambda: PerLayer(fresh=True, kind=Hadamard()))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "levels", 1 <= self.levels <= 255, "from 1 to 255")

    @property
    def intervals(self) -> int:
        return self.levels + 1

    def thresholds(self, ctx: Context, P: Projector) -> Tensor:
        at = [NormalDist().inv_cdf((t + 1) / self.intervals) for t in range(self.levels)]
        return ctx.x0.new_tensor(at)[:, None] * self.deviation(ctx, P)

    def deviation(self, ctx: Context, P: Projector) -> Tensor:
        """The deviation [m] of the sketch of x0: that of its layer where layers have sketches of their own."""
        if not isinstance(self.projection, PerLayer):
            return self.scale(P) * ctx.x0.square().mean().sqrt().expand(P.dim)
        parts = self.projection.parts(asked(self.m, P.d), ctx.layout)
        each = [
            torch.cat([ctx.x0[begin:end] for begin, end in part.spans]).square().mean().sqrt() for part in parts
        ]
        dims = torch.tensor([part.dim for part in parts], device=ctx.x0.device)
        return self.scale(P) * torch.stack(each).repeat_interleave(dims)
