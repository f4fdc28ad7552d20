"""FLAME: personal and global models by ADMM on the sum of Moreau envelopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.errors import require
from descant.methods.admm import ADMM
from descant.methods.base import Gradient, LocalView, ServerView, Tree
from descant.methods.schedules import ByRound


@dataclass(frozen=True, kw_only=True)
class FLAME(ADMM):
    """FLAME (Zhu et al., 2024), Algorithm 1: min sum_i alpha_i (f_i(theta_i) + lam/2 ||theta_i - w||^2), by ADMM.

    Sends u_i = w_i + pi_i / rho, d numbers; the server keeps the last u_i of every client, and w is their mean
    (14). theta_i is the personal model, w the global one. `lam` weighs the tie between them. The local work starts
    from the client's last theta_i and is pulled towards its own w_i (line 12), or, with `pull="global"`, towards w,
    as the authors' code does.

    Clients start with w_i = theta_i and pi_i = 0 (33), so that pi_i = lam alpha_i (theta_i - w_i) throughout
    (Lemma 3), and where rho = lam alpha_i, as in the paper's comparisons, u_i is theta_i itself. lam = 0 is local
    training; without the dual, and pulled towards w, it is pFedMe with eta = alpha_i / (lam alpha_i + rho) (section
    IV-E; with everyone in each round).
    """

    name: ClassVar[str] = "flame"
    paper: ClassVar[str] = "Zhu et al. 2024, On ADMM in Heterogeneous Federated Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    lam: float = 1.0
    lr: float | ByRound = 0.01
    batch: int | ByRound | None = 100
    pull: Literal["local", "global"] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "rho", self.rho > 0, "a positive number")
        require(self, "pull", self.pull in ("local", "global"), "'local' or 'global'")

    def client_start(self, local: LocalView) -> Tree:
        x = local.start
        return {"theta": x, "w_i": x, "pi": x.new_zeros(x.shape)} | self.first_eps(x)

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        alpha, anchor = self.alpha(down, local), self.anchor(down, state)
        theta, eps = self.solve(
            self.slope_of_11, state["theta"], anchor, alpha=alpha, state=state, local=local, role="personal"
        )
        message, tied = self.agree(theta, alpha, down, state, local)
        return message, {"theta": theta} | tied | eps

    def anchor(self, down: Tree, state: Tree) -> Tensor:
        return state["w_i"] if self.pull == "local" else down["w"]

    def slope_of_11(self, theta: Tensor, grad: Gradient, w_i: Tensor) -> Tensor:
        """The gradient of (11) in theta, divided by alpha_i: line 12."""
        return self.slope(theta, grad) + self.lam * (theta - w_i)

    def agree(self, theta: Tensor, alpha: Tensor, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        """Lines 14 to 16: the message, and the client's new w_i and pi_i."""
        w, pi, tie = down["w"], state["pi"], self.lam * alpha
        w_i = (tie * theta + self.rho * w - pi) / (tie + self.rho)  # (12)
        pi = self.step_dual(w_i, w, pi)  # (13)
        return self.message(w_i, pi, local), {"w_i": w_i, "pi": pi}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["theta"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]
