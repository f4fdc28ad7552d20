"""Per-FedAvg: a model from which one gradient step leads to a good personal one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.errors import require
from descant.methods.base import Gradient, LocalView, Tree, Work
from descant.methods.fedavg import FedAvg
from descant.methods.optimizers import Down
from descant.methods.schedules import ByRound


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(FedAvg):
    """Per-FedAvg (Fallah et al., 2020), Algorithm 1: min_w mean_k F_k(w), F_k(w) = f_k(w - alpha grad f_k(w)).

    The gradient of F_k is (I - alpha H) g, with g = grad f_k(w - alpha grad f_k(w)) and the Hessian H of f_k at w;
    the two gradients and H are of minibatches of their own. `hessian` says where H g comes from: "free" (HF) takes
    the difference of gradients at w + delta g and w - delta g, for a small `delta`, and "none" (FO) leaves it out.
    That makes 4 or 2 gradients a step.

    A client deploys w after `adapt` steps of rate `alpha` on its training data (one, as in the paper), which are
    on nobody's bill. Sends what FedAvg sends, without n_k. `lr` is the paper's beta and `steps` its tau. The
    defaults of `alpha`, `lr` and `batch` are what others report from the paper (KarhouTam/Per-FedAvg).
    """

    name: ClassVar[str] = "per-fedavg"
    paper: ClassVar[str] = "Fallah et al. 2020, Personalized Federated Learning: A Meta-Learning Approach"
    personalizes: ClassVar[bool] = True
    default_work: ClassVar[Work] = Work(steps=10)

    alpha: float = 0.01
    lr: float | ByRound = 0.001
    batch: int | ByRound | None = 40
    hessian: Literal["free", "none"] = "free"
    delta: float = 0.001
    adapt: int = 1
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", self.alpha >= 0, "zero or more")
        require(self, "hessian", self.hessian in ("free", "none"), "'free' or 'none'")
        require(self, "delta", self.delta > 0, "a positive number")
        require(self, "adapt", self.adapt >= 1, "a positive number")

    def train(self, w: Tensor, local: LocalView) -> Tensor:
        return local.run(self.step, w, w, work=self.work, role="shared", draws=3 if self.hessian == "free" else 2)

    def step(self, x: Tensor, grad: Gradient, w: Tensor) -> Down:
        g = grad(x - self.alpha * grad(x), draw=1)
        if self.hessian == "free":
            difference = grad(x + self.delta * g, draw=2) - grad(x - self.delta * g, draw=2)
            g = g - self.alpha * difference / (2 * self.delta)
        return self.down(x, self.guarded(x, g))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        work = Work(steps=self.adapt, batch=self.batch)
        return local.run(self.adapted, down["w"], work=work, role="personal", start="shared")

    def adapted(self, x: Tensor, grad: Gradient) -> Tensor:
        return x - self.alpha * grad(x)

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]
