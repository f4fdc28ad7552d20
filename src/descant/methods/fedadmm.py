"""FedADMM: one model for all, by ADMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.methods.admm import ADMM
from descant.methods.base import Gradient, LocalView, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class FedADMM(ADMM):
    """FedADMM (Zhou and Li, 2023): min sum_i alpha_i f_i(theta_i) such that theta_i = w, by inexact ADMM.

    Client i descends alpha_i f_i(theta) + <pi_i, theta - w> + rho/2 ||theta - w||^2, divided by alpha_i, from its
    last theta_i, or, with `reset`, from w; then pi_i <- pi_i + rho (theta_i - w). Sends u_i = theta_i + pi_i / rho;
    the server keeps the last u_i of every client, and w is their mean.

    This is the formulation that FLAME calls FedADMM (its eq. 19); that of Gong et al. (2022) is the same with
    alpha_i = 1, rho m in the place of rho, and a server step of its own. Without the dual, with `reset` and with
    everyone in each round it is the plain average of FedProx with mu = rho / alpha_i, and with rho = 0 of FedAvg.
    """

    name: ClassVar[str] = "fedadmm"
    paper: ClassVar[str] = "Zhou and Li 2023, Federated Learning via Inexact ADMM"
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False

    reset: bool = False

    def client_start(self, local: LocalView) -> Tree:
        x = local.start
        return {"theta": x, "pi": x.new_zeros(x.shape)} | self.first_eps(x)

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, pi, alpha = down["w"], state["pi"], self.alpha(down, local)
        theta, eps = self.solve(
            self.slope_of_lagrangian,
            self.resumes(down, state, local),
            w,
            pi,
            alpha,
            alpha=alpha,
            state=state,
            local=local,
            role="shared",
        )
        pi = self.step_dual(theta, w, pi)
        return self.message(theta, pi, local), {"theta": theta, "pi": pi} | eps

    def resumes(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"] if self.reset else state["theta"]

    def slope_of_lagrangian(self, theta: Tensor, grad: Gradient, w: Tensor, pi: Tensor, alpha: Tensor) -> Tensor:
        return self.slope(theta, grad) + (pi + self.rho * (theta - w)) / alpha

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]
