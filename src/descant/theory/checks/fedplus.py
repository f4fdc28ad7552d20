"""Fed+'s fixed points and aggregation, checked."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from descant.theory import printed
from descant.theory.checks.findings import Agreement, Claim, Finding
from descant.theory.fedplus import (
    Prox,
    envelope_gradient,
    fixed_point,
    printed_aggregation,
    residuals,
    shrink,
    soft_threshold,
)
from descant.theory.montecarlo import generator

PAPER = "Fed+"
SIGMA, DELTA = 0.7, 0.3


def _parties(seed: int) -> tuple[Tensor, Tensor]:
    rng = generator(seed, "fed+ parties")
    X = torch.tensor(rng.normal(0, 1, (5, 12, 3)))
    return X.mT @ X / 12, torch.tensor(rng.normal(0, 2, (5, 3)))


def run(A: Tensor, h: Tensor, prox: Prox, sigma: float, rounds: int) -> tuple[Tensor, Tensor]:
    """Algorithm 1 with exact local solves, everyone in every round, and an aggregate (13) to convergence."""
    W, w = torch.zeros_like(h), torch.zeros_like(h[0])
    eye = torch.eye(h.shape[1], dtype=h.dtype)
    own = (A @ h[..., None])[..., 0]
    for _ in range(rounds):
        W = torch.linalg.solve(A + sigma * eye, own + sigma * (w + prox(W - w)))
        w, _ = printed_aggregation(W, prox, 1e-13, 2000, start=w)
    return W, w


def fixed_points(trials: int, seed: int) -> list[Finding]:
    """Algorithm 1 beside the closed forms of Corollary 1, and beside Theorem 2's conditions."""
    A, h = _parties(seed)
    proxes: dict[str, Prox] = {
        "zero": lambda x: x,
        "indicator": torch.zeros_like,
        "squared": lambda x: x / (1 + DELTA),
        "l1": partial(soft_threshold, delta=DELTA),
        "l2": partial(shrink, delta=DELTA),
    }
    corollary = {"zero": "(a)", "indicator": "(b)", "squared": "(c)"}
    found: list[Finding] = []
    for psi, prox in proxes.items():
        W, w = run(A, h, prox, SIGMA, 400)
        gradients = (A @ (W - h)[..., None])[..., 0]
        first, second = residuals(gradients, W, w, prox, SIGMA)
        found.append(Agreement(PAPER, "Theorem 2", f"both conditions of (19), Psi {psi}", 0.0, max(first, second)))
        if psi in corollary:
            exact, reference = fixed_point(A, h, SIGMA, psi, DELTA)
            distance = float((W - exact).abs().max())
            if reference is not None:
                distance = max(distance, float((w - reference).abs().max()))
            where = f"Corollary 1 {corollary[psi]}"
            found.append(Agreement(PAPER, where, f"Algorithm 1's distance from it, Psi {psi}", 0.0, distance))
    W, reference = fixed_point(A, h, SIGMA, "squared", DELTA)
    assert reference is not None
    z = (W + DELTA * reference) / (1 + DELTA)
    right = reference - (1 + DELTA) / (SIGMA * DELTA) * envelope_gradient(A, h, SIGMA, z)
    found.append(Agreement(PAPER, "(22)", "the distance of its two sides", 0.0, float((W - right).abs().max())))
    return found


def statements(trials: int, seed: int) -> list[Finding]:
    x = torch.tensor([[2.0, -2.0, 0.05, -0.05]], dtype=torch.float64)
    as_printed, right = printed.soft_threshold(x, 0.1), soft_threshold(x, 0.1)
    steps = []
    for outlier in (1e1, 1e2, 1e3, 1e4):
        W = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None].clone()
        W[-1] = outlier
        steps.append(printed_aggregation(W, partial(shrink, delta=0.1), 1e-9, 100_000)[1])
    return [
        Claim(
            PAPER,
            "(12)",
            "the soft threshold max{0, x - delta sign(x)} is the prox of delta ||.||_1",
            torch.equal(as_printed, right),
            f"of -2 at delta = 0.1 it makes {float(as_printed[0, 1]):g}, and the prox {float(right[0, 1]):g}",
            "formula",
        ),
        Claim(
            PAPER,
            "(13)",
            "(asked here) the iteration takes no longer where an outlier is larger",
            max(steps) <= steps[0],
            "; ".join(f"outlier {10 ** (i + 1):,}: {n:,} steps" for i, n in enumerate(steps))
            + " (10 parties, delta = 0.1)",
            "question",
        ),
    ]
