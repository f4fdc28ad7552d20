"""Hush: personal models tied to a shared model that moves in few directions a round, other ones each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling import Fold, Form, Projection, Projector
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
from descant.methods.schedules import ByRound
from descant.methods.subspace import asked, check_dim, check_fit
from descant.mirrors import host, sent
from descant.rotation import rotated, rotated_back
from descant.rounding import fitting, nearest, on_grid, packed, rounded, unbiased
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class Hush(Descent):
    """Hush: Ditto whose shared model w is trained, round by round, in a new random subspace of `m` dimensions.

    All parties derive S_t, an `m` x d matrix whose rows are by default orthonormal, from the seed and the number of
    the step. A client takes its steps on q, at w + U' q with U = sqrt(g) S_t, and sends q, in few bits a number.
    The server combines them, and says the result q, in few bits too; all go on from what it said:

        velocity <- beta velocity + U' q,    w <- w + velocity.

    Beside it the client trains v, free in all d dimensions, on f_k(v) + lam/2 ||v - w||^2, as in Ditto:
    `lam` = 0 is local training. Steps on q have the rate `shared_lr`; by default it is `lr`, that of v. `beta` is
    the momentum of the server. The mean is weighed by numbers of examples, which travel along, or with `weighted`
    off it is a plain one.

    Whoever missed steps fetches them, or everything anew where that is shorter: w and the velocity. With a `pool`,
    so many subspaces are used in turn, and two sums of q for each of them say as much; by default every step has a
    subspace of its own. `m` below 1 is a share of d. `gain` is g, how far a step goes in the subspace: by default
    (d + r) / (m + r) with r = d / 50, but at most 500, see `stretch`. `projection` is the kind of S_t; one that is
    not `fresh` is the same in all rounds.

    `bits` are those of a number that a client sends, and of one that the server says, or one number for both; None
    sends numbers as they are. What the server says is fetched by everyone who missed it, so that its bits cost
    more. Numbers are rounded to the `nearest` of 2^bits even steps, of the width that fits them best; with
    `nearest` off at random, so that the mean is right. With `rotate`, q is turned by a random rotation of its `m`
    dimensions before it is rounded, up and down, and what is rounded to the nearest is made longer, so that the
    mean over rotations is right (see the codec `uniform`).
    """

    name: ClassVar[str] = "hush"
    paper: ClassVar[str] = "descant's own: docs/hush.md"
    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True
    default_work: ClassVar[Work] = Work(steps=20)
    revision: ClassVar[int] = 2  # the `share` came later
    # r: of the directions in which the loss is curved most, about how many there are
    rank: ClassVar[int] = 500  # at most
    share: ClassVar[float] = 0.02  # of all d directions

    m: int | float = 0.0952
    bits: int | tuple[int, int] | None = (2, 1)
    nearest: bool = True
    rotate: bool = True
    pool: int | None = None
    beta: float = 0.6
    lam: float = 1.0
    lr: float | ByRound = 0.05
    shared_lr: float | ByRound | None = None
    gain: float | None = None
    weighted: bool = True
    projection: Projection = field(default_factory=lambda: Fold(fresh=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dim(self)
        given = [bits for bits in (self.bits_up, self.bits_down) if bits is not None]
        require(self, "bits", all(1 <= bits <= 16 for bits in given), "from 1 to 16, or nothing")
        require(self, "pool", self.pool is None or self.pool >= 1, "a positive number, or nothing")
        drawn_anew = self.pool is None or self.projection.fresh
        require(self, "pool", drawn_anew, "nothing where the projection is one for ever (not `fresh`)")
        require(self, "beta", 0 <= self.beta < 1, "from 0 to below 1")
        require(self, "lam", self.lam >= 0, "zero or more")
        positive = self.shared_lr is None or isinstance(self.shared_lr, ByRound) or self.shared_lr > 0
        require(self, "shared_lr", positive, "a positive number, or nothing")
        require(self, "gain", self.gain is None or self.gain > 0, "a positive number, or nothing")

    @property
    def bits_up(self) -> int | None:
        """The bits of a number that a client sends."""
        return self.bits[0] if isinstance(self.bits, tuple) else self.bits

    @property
    def bits_down(self) -> int | None:
        """The bits of a number that the server says."""
        return self.bits[1] if isinstance(self.bits, tuple) else self.bits

    def check_run(self, rounds: int, layout: Layout) -> None:
        check_fit(self, layout)

    def dim(self, d: int) -> int:
        """The dimension of the subspaces, which their kind may make another than was asked for (identity)."""
        return self.projection.dim(asked(self.m, d), d)

    def subspace(self, ctx: Context, step: int, w: Tensor) -> Projector:
        """S of a step, counted from 0, for models like the rows w [K, d]."""
        turn = step if self.pool is None else step % self.pool
        return self.projection.drawn(ctx.at(turn + 1), asked(self.m, w.shape[-1]), w)

    def stretch(self, d: int) -> float:
        """sqrt(g). A step moves w by -lr g S'S grad, and the mean of S'S is (m / d) I: g = d / m restores the step.

        It must not leap too far, either. If the loss has the curvature L in r random directions and none in the
        others, that of the subspace is about L (sqrt(m) + sqrt(r))^2 / d, at most 2 L (m + r) / d: with
        g = d / (m + r) half the rate is safe there that is safe in the whole space. For m = d both are to be
        g = 1. Adam's moves do not depend on the slope's size: it moves a parameter as far as ever by g = d / m.
        """
        m, r = self.dim(d), min(self.rank, self.share * d)
        return sqrt((d + r) / (m + r) if self.gain is None else self.gain)

    def server_start(self, ctx: Context) -> Tree:
        nothing, step = torch.zeros_like(ctx.x0), sent(torch.zeros((), dtype=torch.int64), ctx.x0.device)
        q = nothing[: self.dim(len(nothing))]
        return {"w": ctx.x0, "velocity": nothing, "q": q, "span": nothing[:1], "step": step}

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "known": torch.zeros_like(local.n)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        """What the server said last; w follows from all that it said (`fetches`), and q starts at zero."""
        said, origin = self.said(server["q"], server["span"]), torch.zeros_like(server["q"])
        return {"w": server["w"], "said": said, "step": server["step"], "origin": origin}

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        """What a client missed, `said` by `said`, or w anew: it builds w itself, and the rest it knows."""
        missed = down["step"] - state["known"]
        one, numbers = down["said"].shape[1], self.numbers(down["w"].shape[1])
        anew = missed * one > numbers * down["w"].element_size()
        nothing = torch.zeros_like(missed)
        fetched = {"w": numbers * anew, "said": one * missed * ~anew}
        return fetched | {"step": nothing, "origin": nothing}

    def numbers(self, d: int) -> int:
        """How many numbers say all that was said so far: w, or sums of the q of each subspace.

        With momentum it is twice as many. After T steps, with A = sum_t q_t and B = sum_t beta^(T - t) q_t over
        those of a subspace, w = x0 + sum U' (A - beta B) / (1 - beta), and the velocity is sum U' B.
        """
        subspaces = self.pool if self.projection.fresh else 1
        once = d if subspaces is None else min(d, subspaces * self.dim(d))
        return 2 * once if self.beta else once

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, step = down["w"], int(host(down["step"])[0])
        q, kept = self.on_shared.shared_work(self.subspace(local.ctx, step, w), w, state, local)
        v = local.run(self.settle, state["v"], w, work=self.work, role="personal")
        message = {"q": q} | ({"n": local.n.to(torch.int32)} if self.weighted else {})
        return message, {"v": v, "known": torch.full_like(state["known"], step)} | kept

    @property
    def on_shared(self) -> Self:
        """The same with the rate of the shared model."""
        return self if self.shared_lr is None else replace(self, lr=self.shared_lr, shared_lr=None)

    def shared_work(self, S: Projector, w: Tensor, state: Tree, local: LocalView) -> tuple[Tensor, Tree]:
        """The steps on the shared model: the q [K, m] to send, and what else of them clients keep."""
        explore, nothing = partial(self.explore, S.form), w.new_zeros(len(w), S.dim)
        return local.run(explore, nothing, w, *S.rows(len(w)), work=self.work, role="shared"), {}

    def explore(self, form: Form, q: Tensor, grad: Gradient, w: Tensor, *rows: Tensor) -> Down:
        """A step on q down the slope of f_k(w + U' q), which is U grad."""
        S, a = form.of(rows), self.stretch(w.shape[1])
        return self.down(q, a * S.project(self.slope(S.onto(w, a * q), grad)))

    def settle(self, v: Tensor, grad: Gradient, w: Tensor) -> Down:
        """A step on v, tied to w (Ditto, Algorithm 1, line 6)."""
        return self.down(v, self.slope(v, grad) + self.lam * (v - w))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        w, step = server["w"], host(server["step"])  # which a GPU need not be asked for
        key = self.rotation(server.ctx, int(step))
        said, span = self.heard(aggregate({"q": messages["q"]}, weights=messages.get("n"))["q"], server.ctx, key)
        q = said if key is None else rotated_back(said[None], key)[0]
        S = self.subspace(server.ctx, int(step), w[None])
        velocity = self.beta * server["velocity"] + self.stretch(len(w)) * S.lift(q[None])[0]
        new = {"q": said, "span": span, "step": sent(step + 1, w.device)}
        return {"w": w + velocity, "velocity": velocity, **new}

    def rotation(self, ctx: Context, step: int) -> Tensor | None:
        """What the rotation of a step follows from, if q is rotated before it is rounded."""
        return ctx.at(step + 1).bits("hush rotation") if self.rotate and self.bits is not None else None

    def heard(self, q: Tensor, ctx: Context, key: Tensor | None) -> tuple[Tensor, Tensor]:
        """q [m] as everyone hears it, rotated as a `key` says, on points of a grid, and the span [1] of that."""
        bits = self.bits_down
        if bits is None:
            return q, torch.zeros_like(q[:1])
        if key is not None:
            q = rotated(q[None], key)[0]
        if self.nearest:
            span = fitting(q[None], bits)
            points = nearest(q[None], span, bits)
            if key is not None:
                span = unbiased(q[None], points, span, bits)
        else:
            span = q.abs().amax(0, keepdim=True)[None]
            points = rounded(q[None], span, bits, ctx.uniform("hush", (1, len(q))))
        return on_grid(points, span, bits)[0], span[0]

    def said(self, q: Tensor, span: Tensor) -> Tensor:
        """The bytes of a q [m] that is `heard`: the span of the grid, and its points in few bits."""
        bits = self.bits_down
        if bits is None:
            return q.contiguous().view(torch.uint8)
        points = nearest(q[None], span[None], bits)
        return torch.cat([span.view(torch.uint8), packed(points, bits)[0]])

    @property
    def turns(self) -> bool:
        return self.projection.fresh and self.pool != 1

    @property
    def refuses(self) -> Mapping[str, str]:
        said = "clients build the shared model from what the server says, which `bits` rounds: leave it native"
        return {"downlink": said}

    @property
    def rounding(self) -> Rounding | None:
        bits = self.bits_up
        return None if bits is None else Rounding(bits, nearest=self.nearest, rotate=self.rotate)

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"q": difference(of="origin")}

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]
