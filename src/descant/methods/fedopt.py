"""FedOpt: FedAvg whose server takes the mean update for a gradient, and hands it to an optimizer of its own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.methods.base import Aggregate, Messages, ServerView, Tree
from descant.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class ServerStep(FedAvg):
    """The fields of methods whose server makes a step of its own of Delta, the mean update of FedAvg.

    `server_lr` is the rate of that step.
    """

    server_lr: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "server_lr", self.server_lr > 0, "a positive number")

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"delta": messages["delta"]}, weights=messages.get("n"))
        return self.moved(server, mean["delta"])

    @abstractmethod
    def moved(self, server: Tree, delta: Tensor) -> Tree:
        """The server's next state, from the mean update Delta [d]."""


@dataclass(frozen=True, kw_only=True)
class FedAvgM(ServerStep):
    """FedAvgM (Hsu et al., 2019): v <- beta v + Delta, w <- w + server_lr v.

    `beta` is the momentum of the server. Sends what FedAvg sends; beta = 0 with server_lr = 1 is FedAvg.
    """

    name: ClassVar[str] = "fedavgm"
    paper: ClassVar[str] = "Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution"

    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta", 0 <= self.beta < 1, "from 0 to below 1")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "v": torch.zeros_like(ctx.x0)}

    def moved(self, server: Tree, delta: Tensor) -> Tree:
        v = self.beta * server["v"] + delta
        return {"w": server["w"] + self.server_lr * v, "v": v}


@dataclass(frozen=True, kw_only=True)
class Adaptive(ServerStep):
    """The fields of FedOpt's adaptive methods: w <- w + server_lr m / (sqrt(v) + tau).

    `server_lr` is the rate of the server, the paper's eta, which it tunes from 1e-3 to 10; 0.1 is the middle.
    `beta1` is the memory of m <- beta1 m + (1 - beta1) Delta. `tau` is the degree of adaptivity: the smaller, the
    more coordinates move alike. m starts at 0 and v at tau^2, the least that Algorithm 2 allows; neither is
    corrected for its start.
    """

    server_lr: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta1", 0 <= self.beta1 < 1, "from 0 to below 1")
        require(self, "tau", self.tau > 0, "a positive number")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "m": torch.zeros_like(ctx.x0), "v": torch.full_like(ctx.x0, self.tau**2)}

    def moved(self, server: Tree, delta: Tensor) -> Tree:
        m = self.beta1 * server["m"] + (1 - self.beta1) * delta
        v = self.second(server["v"], delta.square())
        return {"w": server["w"] + self.server_lr * m / (v.sqrt() + self.tau), "m": m, "v": v}

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v, from Delta^2 [d]."""


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(Adaptive):
    """FedAdagrad (Reddi et al., 2021), Algorithm 2: v <- v + Delta^2, w <- w + server_lr m / (sqrt(v) + tau).

    `beta1` is 0 in the paper's experiments: m is Delta. Sends what FedAvg sends.
    """

    name: ClassVar[str] = "fedadagrad"
    paper: ClassVar[str] = "Reddi et al. 2021, Adaptive Federated Optimization"

    beta1: float = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


@dataclass(frozen=True, kw_only=True)
class Remembering(Adaptive):
    """What keeps `beta2` of v from round to round."""

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta2", 0 <= self.beta2 < 1, "from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class FedYogi(Remembering):
    """FedYogi (Reddi et al., 2021), Algorithm 2: v <- v - (1 - beta2) Delta^2 sign(v - Delta^2).

    w <- w + server_lr m / (sqrt(v) + tau). `beta2` is the memory of v, which grows by no more than the share
    1 - beta2 of Delta^2 in a round. Sends what FedAvg sends.
    """

    name: ClassVar[str] = "fedyogi"
    paper: ClassVar[str] = "Reddi et al. 2021, Adaptive Federated Optimization"

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()


@dataclass(frozen=True, kw_only=True)
class FedAdam(Remembering):
    """FedAdam (Reddi et al., 2021), Algorithm 2: v <- beta2 v + (1 - beta2) Delta^2.

    w <- w + server_lr m / (sqrt(v) + tau). `beta2` is the memory of v. Sends what FedAvg sends.
    """

    name: ClassVar[str] = "fedadam"
    paper: ClassVar[str] = "Reddi et al. 2021, Adaptive Federated Optimization"

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square
