"""The centre of points under a penalty: argmin_w sum_k p_k psi_t(w_k - w), eq. (7) of Fed+.

psi_t is the Moreau envelope of the penalty. Here: what all solvers share, and two that serve any penalty; `medians`
has those of the norms. They compute in float64 whatever the points' own dtype is, and start where outliers cannot
take them, so that the cost does not grow with an outlier's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from descant.coupling.columns import by_columns, ordered


class Center(NamedTuple):
    """A centre, and how well it solves its problem."""

    w: Tensor  # [d]
    residual: float  # the norm of the objective's least subgradient at w, with weights that sum to 1
    iterations: int


class Stop(NamedTuple):
    """When a solver stops: at a residual of at most `tol`, or after `cap` iterations."""

    tol: float = 1e-10
    cap: int = 1000


def shares(p: Tensor, x: Tensor) -> Tensor:
    """Weights p [K] as shares that sum to 1."""
    p = p.to(x)
    return p / p.sum()


def mean(x: Tensor, p: Tensor) -> Center:
    """The centre of x [K, d] under a squared norm, with weights p [K]."""
    x = x.double()
    p = shares(p, x)
    w = p @ x
    return Center(w, float(torch.linalg.vector_norm(p @ (x - w))), 0)


def median_interval(x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """All medians of x [K, d] with weights p [K], coordinate by coordinate: the ends [d] of an interval."""
    alike = bool((p == p[0]).all())
    low, high = by_columns(x, lambda block: _halves(block) if alike else _weighted_halves(block, p.double()))
    return low, high


def middle(x: Tensor, p: Tensor) -> Tensor:
    """The coordinate-wise median [d] of x [K, d] with weights p [K]; of several, the middle one."""
    low, high = median_interval(x, p)
    return (low + high) / 2


def _halves(x: Tensor) -> Tensor:
    """The ends [2, d] of the medians of x [K, d], all of the same weight."""
    values = ordered(x).double()
    ends = values[[(len(x) - 1) // 2, len(x) // 2]]
    return torch.where(values[-1].isnan(), torch.nan, ends)  # NaN, which is last, must not pass for a large number


def _weighted_halves(x: Tensor, p: Tensor) -> Tensor:
    values, order = x.double().sort(0)  # NaN last
    mass, half = p[order].cumsum(0), p.sum() / 2
    ends = [values.gather(0, below.sum(0, keepdim=True))[0] for below in (mass < half, mass <= half)]
    return torch.where(values[-1].isnan(), torch.nan, torch.stack(ends))


def accelerated(
    x: Tensor, p: Tensor, gradient: Callable[[Tensor], Tensor], t: float, stop: Stop, loses: bool = False
) -> Center:
    """The centre of x [K, d] under the envelope psi_t of any convex psi, given the gradient of psi_t.

    Set `loses` where the gradient is computed as (c - prox(c)) / t. That difference loses the last digits of c, and
    what is lost is added to the residual.

    A gradient step of length t is iteration (13) of Fed+, w <- sum_k p_k (w_k - prox(w_k - w)). Here it has
    Nesterov's momentum, restarted when it points uphill (O'Donoghue and Candes, 2015), and begins at the mean or at
    the median, whichever is nearer to solving the problem.
    """
    x = x.double()
    p = shares(p, x)

    def look(w: Tensor) -> tuple[Tensor, float]:  # one iteration of (13), and what is left
        c = x - w
        slope = p @ gradient(c)
        lost = torch.finfo(c.dtype).eps / t * float(torch.linalg.vector_norm(p @ c.abs())) if loses else 0.0
        return t * slope, float(torch.linalg.vector_norm(slope)) + lost

    low, high = median_interval(x, p)
    starts = [p @ x, (low + high) / 2]
    y = w = min(starts, key=lambda start: look(start)[1])
    momentum, iterations = 1.0, 0
    while True:
        step, residual = look(y)
        if not residual > stop.tol or iterations == stop.cap:
            return Center(y, residual, iterations)
        last, w = w, y + step
        if float(step @ (w - last)) < 0:
            momentum = 1.0
        after = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        y = w + (momentum - 1) / after * (w - last)
        momentum, iterations = after, iterations + 1
