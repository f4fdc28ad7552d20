"""Points of the simplex: the nearest one, and the mixture of vectors that is shortest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def onto_simplex(y: Tensor) -> Tensor:
    """The point of the simplex that is nearest to y (Duchi et al., 2008); NaN where y is not finite."""
    if not y.isfinite().all():
        return torch.full_like(y, torch.nan)
    y = y - y.max()  # which moves no projection, and keeps the digits of what is large
    down = y.sort(descending=True).values
    over = (down.cumsum(0) - 1) / torch.arange(1, len(y) + 1, device=y.device)
    return (y - over[down > over][-1]).clamp(min=0)


class Shortest(NamedTuple):
    """A mixture whose vector is the shortest, as far as it was found."""

    weights: Tensor  # [S]
    gap: float  # no mixture's squared length is smaller by more than twice this
    iterations: int


def shortest_mixture(gram: Tensor, low: Tensor, high: Tensor, tol: float, cap: int) -> Shortest:
    """argmin of ||sum_k lambda_k g_k||^2 over lambda on the simplex with low <= lambda <= high.

    `gram` [S, S] holds the products g_i'g_j. This is the algorithm of Wolfe (1976) for the point of a polytope that
    is nearest to the origin, here {sum_k lambda_k g_k}: a few vertices are kept, and lambda is the best mixture of
    them. The vertex that lies furthest downhill is added until the gap <grad, lambda - vertex>, which bounds what
    is left to gain, is at most `tol`; or `cap` times; or until rounding hides what is left. For unit vectors that
    is near 1e-16 where weights have no bounds, and below 1e-9 for a hundred clients whose weights have.
    """
    gram, low, high = gram.double(), low.double(), high.double()
    corners = _downhill(gram.new_zeros(len(gram)), low, high)[None]  # [V, S]
    share = gram.new_ones(1)  # of each corner in lambda
    tried, rounding = corners[0], 1e-15 * float(gram.diagonal().max())
    for iteration in range(cap + 1):
        weights = share @ corners
        slope = gram @ weights
        corner = _downhill(slope, low, high)
        gap = max(0.0, float(slope @ (weights - corner)))
        known = (torch.cat([corners, tried[None]]) - corner).abs().amax(1).min() <= 1e-12
        if gap <= max(tol, rounding) or bool(known) or iteration == cap:  # a known corner has no more to give
            break
        tried = corner
        corners, share = torch.cat([corners, corner[None]]), torch.cat([share, share.new_zeros(1)])
        corners, share = _best_of(corners, share, gram)
    return Shortest(weights, gap, iteration)


def _downhill(slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The corner of {low <= lambda <= high, sum lambda = 1} with the least <slope, lambda>."""
    order = slope.argsort(stable=True)
    room = (high - low)[order]
    left = 1 - low.sum() - (room.cumsum(0) - room)  # when it is their turn
    return low.scatter_add(0, order, left.clamp(min=0).minimum(room))


def _best_of(corners: Tensor, share: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """The corners [V, S] whose mixture is the shortest, with their shares, all positive (Wolfe's minor cycle)."""
    while True:
        products = corners @ gram @ corners.T
        # A constant more is as good for shares that sum to 1, and makes the system regular.
        flat = torch.linalg.solve(products + gram.diagonal().max(), torch.ones_like(share))
        flat = flat / flat.sum()  # the shortest in the plane of the corners
        if bool((flat > 0).all()):
            return corners, flat
        back = flat <= 0  # go as far as all shares stay positive, and drop who has none
        reach = torch.where(back, share / (share - flat), torch.inf)
        share = share + reach.min() * (flat - share)
        kept = torch.ones_like(back)
        kept[reach.argmin()] = False
        corners, share = corners[kept], share[kept]
