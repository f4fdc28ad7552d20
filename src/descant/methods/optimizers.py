"""How a client moves where its method's step points: plainly, with momentum, or by Adam.

A step proposes a move, x' - x = -lr g, with g the gradient of what the client minimises, penalties included. An
optimizer makes another move of it. Its state begins anew whenever local work begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf, log
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from descant.errors import require
from descant.fields import Checked
from descant.notensor import NoTensorError, never_computed_with

State = tuple[Tensor, ...]  # [K, ...] each
_NO_TENSOR = (
    "self.down(...) is what a step returns, and no tensor: return it as it is, or write v - self.rate * g in its "
    "place where more is to follow"
)


class Down(NamedTuple):
    """What a step returns that goes down a slope: x' = x - lr slope, and of what it was made."""

    x: Tensor
    slope: Tensor
    lr: float

    @property
    def move(self) -> Tensor:
        """x' - x, without the rounding of x."""
        return -self.lr * self.slope

    @classmethod
    def __torch_function__(cls, *called: Any, **more: Any) -> Any:
        raise NoTensorError(_NO_TENSOR)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"'{type(self).__name__}' has no '{name}'")
        raise NoTensorError(_NO_TENSOR)


never_computed_with(Down, _NO_TENSOR)


@dataclass(frozen=True, kw_only=True)
class Optimizer(Checked, ABC):
    """What becomes of the moves that steps propose."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, x: Tensor) -> State:
        """The state of K clients at rest, at x [K, d]."""

    @abstractmethod
    def move(self, proposed: Tensor, lr: float, state: State) -> tuple[Tensor, State]:
        """The move in the place of the `proposed` one [K, d], which is -lr g, and the next state."""


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Plain steps: x <- x - lr g."""

    name: ClassVar[str] = "sgd"

    def start(self, x: Tensor) -> State:
        return ()

    def move(self, proposed: Tensor, lr: float, state: State) -> tuple[Tensor, State]:
        return proposed, state


@dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """Heavy ball: each move is the proposed one and `beta` times the last. It is torch.optim.SGD(momentum=beta)."""

    name: ClassVar[str] = "momentum"

    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta", 0 <= self.beta < 1, "from 0 to below 1")

    def start(self, x: Tensor) -> State:
        return (torch.zeros_like(x),)

    def move(self, proposed: Tensor, lr: float, state: State) -> tuple[Tensor, State]:
        move = self.beta * state[0] + proposed
        return move, (move,)


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), Algorithm 1: x <- x - lr m / (sqrt(v) + eps), with bias-corrected m and v.

    m and v are running means, by `beta1` and `beta2`, of g and its square. It is torch.optim.Adam.

    Where a step does not say its slope (`Down`), g is (x - x') / lr, which is the gradient for every x' = x - lr g,
    up to the rounding of x: in single precision about 1e-7 |x| / lr. The step of Fed+ descends kappa f_k(x) +
    (1 - kappa) / (2 lr) ||x - anchor||^2, and g is the gradient of that.
    """

    name: ClassVar[str] = "adam"

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta1", 0 <= self.beta1 < 1, "from 0 to below 1")
        require(self, "beta2", 0 <= self.beta2 < 1, "from 0 to below 1")
        require(self, "eps", self.eps > 0, "a positive number")

    def start(self, x: Tensor) -> State:
        return torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x[:, :1])

    def move(self, proposed: Tensor, lr: float, state: State) -> tuple[Tensor, State]:
        m, v, t = state
        g, t = proposed / -lr, t + 1
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g.square()
        size = (v / _rest(self.beta2, t)).sqrt() + self.eps
        return -lr * (m / _rest(self.beta1, t)) / size, (m, v, t)


def _rest(beta: float, t: Tensor) -> Tensor:
    """1 - beta^t, to the last digit in single precision too."""
    return -torch.expm1(t * (log(beta) if beta else -inf))


PLAIN = SGD()
OPTIMIZERS: dict[str, type[Optimizer]] = {o.name: o for o in (SGD, Momentum, Adam)}
