"""The closed-form solutions are stationary points of their objectives, and what the simulator converges to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task, simulate
from descant.coupling import Dense, Identity
from descant.methods import Ditto, FedAvg, LpProj, Method, PFedMe
from descant.theory import quadratics
from tests import held

K, N, D, LAM = 5, 40, 4, 0.6


@pytest.fixture(scope="module")
def examples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(K, N, D, generator=generator, dtype=torch.float64)
    own = torch.randn(K, D, 1, generator=generator, dtype=torch.float64)
    return X, (X @ own)[..., 0] + 0.3 * torch.randn(K, N, generator=generator, dtype=torch.float64)


@pytest.fixture(scope="module")
def problem(examples: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return quadratics.least_squares(*examples)


def slopes(A: Tensor, h: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("kij,kj->ki", A, x - h)


def test_least_squares_gives_the_loss_of_a_linear_regression(examples: tuple[Tensor, Tensor]) -> None:
    X, y = examples
    A, h = quadratics.least_squares(X, y)
    x = torch.ones(K, D, dtype=torch.float64, requires_grad=True)
    loss = ((torch.einsum("knd,kd->kn", X, x) - y) ** 2).sum() / (2 * N)
    (gradient,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(slopes(A, h, x.detach()), gradient)


def test_dittos_solution_is_stationary_in_w_and_then_in_x(problem: tuple[Tensor, Tensor]) -> None:
    A, h = problem
    x, w = quadratics.ditto(A, h, LAM)
    assert float(slopes(A, h, w.expand(K, D)).sum(0).abs().max()) < 1e-12
    assert float((slopes(A, h, x) + LAM * (x - w)).abs().max()) < 1e-12


@pytest.mark.parametrize("alpha", [None, torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15], dtype=torch.float64)])
def test_pfedmes_solution_is_stationary_in_both(problem: tuple[Tensor, Tensor], alpha: Tensor | None) -> None:
    A, h = problem
    x, w = quadratics.pfedme(A, h, LAM, alpha)
    assert float((slopes(A, h, x) + LAM * (x - w)).abs().max()) < 1e-12
    mean = x.mean(0) if alpha is None else alpha @ x
    torch.testing.assert_close(w, mean)


def test_lp_projs_solution_is_stationary_in_both_for_any_projection(problem: tuple[Tensor, Tensor]) -> None:
    A, h = problem
    P = torch.randn(2, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, w = quadratics.lp_proj(A, h, LAM, P)
    assert float((slopes(A, h, x) + LAM * (x @ P.T - w) @ P).abs().max()) < 1e-12
    torch.testing.assert_close(w, (x @ P.T).mean(0))


def test_the_special_cases_agree(problem: tuple[Tensor, Tensor]) -> None:
    A, h = problem
    eye = torch.eye(D, dtype=torch.float64)
    for a, b in zip(quadratics.lp_proj(A, h, LAM, eye), quadratics.pfedme(A, h, LAM), strict=True):
        torch.testing.assert_close(a, b)
    local, nothing = quadratics.lp_proj(A, h, LAM, eye[:0])
    torch.testing.assert_close(local, h)
    assert nothing.numel() == 0
    b = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.2], dtype=torch.float64)
    x, w = quadratics.pfedme(b, h, LAM)
    share = b / (b + LAM)
    torch.testing.assert_close(w, share @ h / share.sum())  # (136)
    torch.testing.assert_close(x, share[:, None] * h + (1 - share)[:, None] * w)
    same = torch.full((K,), 1.7, dtype=torch.float64)
    torch.testing.assert_close(quadratics.ditto(same, h, LAM), quadratics.pfedme(same, h, LAM))
    assert float((quadratics.ditto(b, h, LAM)[0] - x).abs().max()) > 1e-3  # they part where the b_k differ


@pytest.mark.parametrize("solution", [quadratics.ditto, quadratics.pfedme])
def test_lambda_0_is_local_and_large_lambda_is_global(problem: tuple[Tensor, Tensor], solution: Any) -> None:
    A, h = problem
    torch.testing.assert_close(solution(A, h, 1e-9)[0], h, atol=1e-7, rtol=1e-7)
    x, _ = solution(A, h, 1e8)
    torch.testing.assert_close(x, quadratics.ditto(A, h, 0.0)[1].expand(K, D), atol=1e-6, rtol=1e-6)


WORK: dict[str, Any] = {"steps": 1, "batch": None}
EXACT: dict[str, Any] = {"nu": 1e-17, "cap": 500, "lr": 0.25, "batch": None, "lam": LAM, "eta": 1.3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        (Ditto(lam=LAM, lr=0.2, solver=FedAvg(lr=0.2, **WORK), **WORK), 120),
        (PFedMe(**EXACT), 40),
        (LpProj(p=2.0, dim=2, projection=Dense(), **EXACT), 40),
        (LpProj(p=2.0, projection=Identity(), **EXACT), 40),
    ],
    ids=["ditto", "pfedme", "lp-proj", "lp-proj with P = I"],
)
def test_the_simulator_converges_to_the_closed_form(
    examples: tuple[Tensor, Tensor], problem: tuple[Tensor, Tensor], method: Method, rounds: int
) -> None:
    """In float64, with one full-batch step a round or an exact lower level: nothing is left of client drift."""
    X, y = examples
    data = FederatedData.from_arrays([{"train": pair} for pair in zip(X, y, strict=True)])
    task = Task(nn.Linear(D, 1, bias=False).double(), "squared_error")
    run = simulate(task, data, method, rounds=rounds, mode="vmap", evaluate=rounds)
    A, h = 2 * problem[0], problem[1]  # the task's squared error has no factor 1/2
    if isinstance(method, Ditto):
        x, w = quadratics.ditto(A, h, LAM)
    elif isinstance(method, LpProj):
        rows = method.projection.build(0, method.dim, h).project(torch.eye(D, dtype=torch.float64)).T
        x, w = quadratics.lp_proj(A, h, LAM, rows)
    else:
        x, w = quadratics.pfedme(A, h, LAM)
    assert float((held.personal(run) - x).abs().max()) < 1e-6
    assert float((held.by_server(run)["w"] - w).abs().max()) < 1e-6
    assert float((x - h).abs().max()) > 0.05  # and it is not local training
