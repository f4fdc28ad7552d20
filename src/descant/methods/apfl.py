"""APFL: a mixture of a local and the global model, in a proportion that each client learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import Gradient, LocalView, Tree, Work
from descant.methods.fedavg import FedAvg
from descant.methods.optimizers import Down
from descant.methods.schedules import in_round


@dataclass(frozen=True, kw_only=True)
class APFL(FedAvg):
    """APFL (Deng et al., 2020), Algorithm 1: min_v f_k(alpha v + (1 - alpha) w), while w is trained as by FedAvg.

    Both go down in the same steps on the same minibatches, v for the client's own copy of w as it moves. A client
    deploys the mixture with the global w. Sends what FedAvg sends, without n_k; v and alpha never leave the client.

    `alpha` is where the proportions start. If they are `adaptive`, each is descended once a round, before the other
    steps, with their rate and on their first minibatch, and held in [0, 1]: alpha <- alpha - lr <v - w, grad f_k>,
    at the mixture. A fixed alpha = 0 is FedAvg and alpha = 1 local training. Running statistics (BatchNorm), of
    which there would be two sets to move at once, are refused.
    """

    name: ClassVar[str] = "apfl"
    paper: ClassVar[str] = "Deng et al. 2020, Adaptive Personalized Federated Learning"
    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    personalizes: ClassVar[bool] = True

    alpha: float = 0.5
    adaptive: bool = True
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", 0 <= self.alpha <= 1, "from 0 to 1")

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "alpha": torch.full_like(local.start[:, :1], self.alpha)}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, v, alpha = down["w"], state["v"], state["alpha"]
        if self.adaptive:
            rate = torch.full_like(alpha, in_round(self.lr, local.round))
            one = Work(steps=1, batch=self.batch)
            alpha = local.run(self.step_of_alpha, alpha, v, w, rate, work=one, role="shared")
        both = local.run(self.step_of_both, torch.cat([w, v], 1), alpha, work=self.work, role="shared")
        x, v = both.chunk(2, dim=1)
        local.record("alpha", alpha[:, 0])
        return self.message(x - w, local), {"v": v, "alpha": alpha}

    def step_of_alpha(self, alpha: Tensor, grad: Gradient, v: Tensor, w: Tensor, rate: Tensor) -> Tensor:
        slope = ((v - w) * grad(mixture(alpha, v, w))).sum(1, keepdim=True)
        return (alpha - rate * slope).clamp(0, 1)

    def step_of_both(self, both: Tensor, grad: Gradient, alpha: Tensor) -> Down:
        w, v = both.chunk(2, dim=1)
        slopes = self.slope(w, grad), alpha * self.slope(mixture(alpha, v, w), grad)
        return self.down(both, torch.cat(slopes, 1))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return mixture(state["alpha"], state["v"], down["w"])

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        assert isinstance(local.ended, Tensor)
        w, v = local.ended.chunk(2, dim=1)  # w is the client's own copy
        return mixture(state["alpha"], v, w)

    @property
    def refuses(self) -> Mapping[str, str]:
        return {"statistics": "two models move in a step, and it would have two sets of statistics to move at once"}

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]


def mixture(alpha: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """alpha v + (1 - alpha) w; alpha [K, 1]."""
    return alpha * v + (1 - alpha) * w
