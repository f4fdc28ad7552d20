"""MAPPER: a mixture of a local and the global model, in a proportion that each client chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.errors import TaskError, require
from descant.methods.apfl import mixture
from descant.methods.base import Gradient, LocalView, Tree
from descant.methods.candidates import choose, pick
from descant.methods.fedavg import FedAvg
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class MAPPER(FedAvg):
    """MAPPER (Mansour et al., 2020): min over w and all v_k, alpha_k of mean_k f_k(alpha_k v_k + (1 - alpha_k) w).

    In a round a client goes down in v for each of the candidates `alpha`, from its own v and with the w that it
    has heard, on the same minibatches. It keeps the alpha and the v with the lowest loss on its validation data, or
    the middle candidate where it has none. Then it goes down in w, with these, and sends what FedAvg sends, without
    n_k; v and alpha never leave the client. It deploys the mixture with the global w, and w alone before its first
    round. A run reports how many chose each alpha.

    alpha = 0 is FedAvg and alpha = 1 local training. With C candidates a round costs C + 1 times the work. The
    paper's mixture is of what two models say. A client deploys one model, so here it is of their parameters, as in
    the code of Ditto's authors, whose candidates are the default (there chosen on training data). For a linear
    model it is the same. Running statistics (BatchNorm), of which there would be two sets, are refused.
    """

    name: ClassVar[str] = "mapper"
    paper: ClassVar[str] = "Mansour et al. 2020, Three Approaches for Personalization; Ditto, section 4.4"
    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    personalizes: ClassVar[bool] = True

    alpha: float | tuple[float, ...] = (0.25, 0.5, 0.75)
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", len(self.alphas) > 0, "a number, or several")
        require(self, "alpha", all(0 <= alpha <= 1 for alpha in self.alphas), "from 0 to 1")
        different = len(set(self.alphas)) == len(self.alphas)
        require(self, "alpha", different, "different candidates: the work for one that stands twice is wasted")

    @property
    def alphas(self) -> tuple[float, ...]:
        return self.alpha if isinstance(self.alpha, tuple) else (self.alpha,)

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "alpha": torch.zeros_like(local.start[:, :1])}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        if local.buffers["shared"].shape[1]:
            raise TaskError(
                "MAPPER cannot train a model with running statistics (BatchNorm): use nn.GroupNorm, say"
            )
        w, v = down["w"], state["v"]
        alphas = w.new_tensor(self.alphas).expand(len(w), -1)[:, :, None]  # [K, C, 1]
        tried = [local.run(self.step_of_v, v, w, a, work=self.work, role="personal") for a in alphas.unbind(1)]
        mixed = mixture(alphas, torch.stack(tried, 1), w[:, None])  # [K, C, d]
        chosen = choose(mixed, local, least=1, otherwise=(len(self.alphas) - 1) // 2)
        v, alpha = pick(torch.stack(tried, 1), chosen), pick(alphas, chosen)
        for c, value in enumerate(self.alphas):
            local.record(f"alpha={value:g}", chosen == c)
        x = local.run(self.step_of_w, w, v, alpha, work=self.work, role="shared")
        return self.message(x - w, local), {"v": v, "alpha": alpha}

    def step_of_v(self, v: Tensor, grad: Gradient, w: Tensor, alpha: Tensor) -> Down:
        return self.down(v, alpha * self.slope(mixture(alpha, v, w), grad))

    def step_of_w(self, w: Tensor, grad: Gradient, v: Tensor, alpha: Tensor) -> Down:
        return self.down(w, (1 - alpha) * self.slope(mixture(alpha, v, w), grad))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return mixture(state["alpha"], state["v"], down["w"])

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        assert isinstance(local.ended, Tensor)  # the client's own copy of w
        return mixture(state["alpha"], state["v"], local.ended)

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]
