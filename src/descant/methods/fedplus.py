"""Fed+: personal models that a penalty of one's choice ties to a robust aggregate of them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling import L1Norm, L2Norm, Layer, Penalty, Squared, Stop
from descant.coupling.layers import Block, blocks
from descant.errors import require
from descant.mail import LAST, Sent, position
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree
from descant.methods.descent import Descent
from descant.methods.schedules import ByRound
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class FedPlus(Descent):
    """Fed+ (Kundu et al., 2022), Algorithm 1: min_{W, w} mean_k f_k(w_k) + sigma delta psi_delta(w_k - w).

    psi_delta is the Moreau envelope of the `penalty` psi: Psi = sigma delta psi in the paper's eq. (3). `sigma`
    weighs the tie, and `delta` smooths it. The shared model w is the centre of all w_k under it (eq. 7), which
    depends on delta alone: sigma may be 0, and delta = 0 makes medians exact. Sends w_k.

    A round starts from (1 - lam) w_k + lam w, where `lam` is the share of w. A local step keeps the share `kappa`,
    by default 1 / (1 + lr sigma), and takes the rest from w + theta_k. The centre is that of all N `parties`, each
    with the model that it sent last, or of the cohort's. It is solved up to a residual of `tol`, or for `cap`
    iterations, and both are reported. `aggregation="run"` puts the run's aggregator in its place. `layers` may
    have a penalty and a delta of their own (the hybrids of section 4.4).

    Table 1: sigma = 0 is local training; with lam = 1 and the cohort it is FedAvg (squared), and with delta = 0
    RFA (l2) and the coordinate-wise median (l1). FedProx at the rate lr kappa is lam = 1 with the indicator.
    """

    name: ClassVar[str] = "fed+"
    paper: ClassVar[str] = "Kundu et al. 2022, Robustness and Personalization in Federated Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    lr: float = 0.1
    penalty: Penalty = field(default_factory=Squared)
    delta: float = 0.1
    sigma: float = 0.1
    kappa: float | None = None
    lam: float = 0.0
    layers: tuple[Layer, ...] = ()
    parties: Literal["all", "cohort"] = "all"
    aggregation: Literal["penalty", "run"] = "penalty"
    tol: float = 1e-10
    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lr", not isinstance(self.lr, ByRound), "a number: kappa depends on it")
        require(self, "delta", 0 <= self.delta < float("inf"), "zero or more")
        require(self, "sigma", 0 <= self.sigma < float("inf"), "zero or more")
        require(self, "kappa", self.kappa is None or 0 < self.kappa <= 1, "above 0 and at most 1, or nothing")
        require(self, "lam", 0 <= self.lam <= 1, "from 0 to 1")
        require(self, "layers", len({on.layer for on in self.layers}) == len(self.layers), "layers that differ")
        require(self, "parties", self.parties in ("all", "cohort"), "'all' or 'cohort'")
        require(self, "aggregation", self.aggregation in ("penalty", "run"), "'penalty' or 'run'")
        require(self, "tol", self.tol > 0, "a positive number")
        require(self, "cap", self.cap >= 1, "a positive number")

    @property
    def held(self) -> tuple[str, ...]:
        return ("W",) if self.parties == "all" else ()

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"w_k": position(since=LAST if self.parties == "all" else "w", beside="w")}

    def first_sent(self, ctx: Context) -> Tree:
        return {"w_k": ctx.x0}

    @property
    def refuses(self) -> Mapping[str, str]:
        heard = "the server takes clients that it has not heard to hold the common start"
        own = "it combines by its penalty; set aggregation='run' to combine by the run's aggregator"
        found = {"own_start": heard} if self.parties == "all" else {}
        return found | ({"aggregator": own} if self.aggregation == "penalty" else {})

    def check_run(self, rounds: int, layout: Layout) -> None:
        self._blocks(layout)  # an unknown layer is found now

    def server_start(self, ctx: Context) -> Tree:
        self._blocks(ctx.layout)  # in a deployment, which has no other moment to check
        return {"w": ctx.x0} | {leaf: ctx.x0.repeat(ctx.clients, 1) for leaf in self.held}

    def client_start(self, local: LocalView) -> Tree:
        return {"w_k": local.start}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:  # Local-Solve
        w, w_k = down["w"], state["w_k"]
        anchor = w + self.theta(w_k - w, local.layout)
        start = (1 - self.lam) * w_k + self.lam * w
        w_k = local.run(self.step, start, anchor, work=self.work, role="personal")
        return {"w_k": w_k}, {"w_k": w_k}

    def theta(self, c: Tensor, layout: Layout) -> Tensor:
        """prox_{Psi/sigma}(w_k - w), eq. (9)."""
        theta = torch.empty_like(c)
        for at, penalty, delta in self._blocks(layout):
            theta[:, at] = penalty.prox(c[:, at], delta)
        return theta

    def step(self, x: Tensor, grad: Gradient, anchor: Tensor) -> Tensor:  # eq. (11)
        kappa = 1 / (1 + self.lr * self.sigma) if self.kappa is None else self.kappa
        return kappa * (x - self.lr * self.slope(x, grad)) + (1 - kappa) * anchor

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        W = messages.into(server["W"], "w_k") if self.parties == "all" else messages["w_k"]
        w = self.center(W, messages) if self.aggregation == "penalty" else aggregate({"w_k": W})["w_k"]
        return {"w": w} | dict.fromkeys(self.held, W)

    def center(self, W: Tensor, messages: Messages) -> Tensor:
        """A(W), eq. (7)."""
        w, p, residuals, iterations = torch.empty_like(W[0]), torch.ones_like(W[:, 0]), [], 0
        for at, penalty, delta in self._blocks(messages.layout):
            found = penalty.center(W[:, at], p, delta, Stop(self.tol, self.cap))
            w[at] = found.w.to(w.dtype)
            residuals.append(found.residual)
            iterations += found.iterations
        messages.record("aggregation_residual", hypot(*residuals))
        messages.record("aggregation_iterations", iterations)
        return w

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["w_k"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]

    def _blocks(self, layout: Layout) -> list[Block]:
        return blocks(layout, self.layers, self.penalty, self.delta)


@dataclass(frozen=True, kw_only=True)
class FedAvgPlus(FedPlus):
    """FedAvg+ (Kundu et al., 2022): Fed+ with Psi = sigma delta / 2 ||.||^2; w is the mean. Sends w_k."""

    name: ClassVar[str] = "fedavg+"

    penalty: Penalty = field(default_factory=Squared, init=False)


@dataclass(frozen=True, kw_only=True)
class FedGeoMedPlus(FedPlus):
    """FedGeoMed+ (Kundu et al., 2022): Fed+ with Psi = sigma delta ||.||_2; w is a geometric median. Sends w_k."""

    name: ClassVar[str] = "fedgeomed+"

    penalty: Penalty = field(default_factory=L2Norm, init=False)


@dataclass(frozen=True, kw_only=True)
class FedCoMedPlus(FedPlus):
    """FedCoMed+ (Kundu et al., 2022): Fed+ with Psi = sigma delta ||.||_1; w is a coordinate-wise median.

    Sends w_k. Eq. (12) prints a threshold that makes negative numbers zero; the two-sided one is meant.
    """

    name: ClassVar[str] = "fedcomed+"

    penalty: Penalty = field(default_factory=L1Norm, init=False)
