"""The centres of points under the l1 and the l2 norm: coordinate-wise and geometric medians, exact or smoothed.

At t = 0 the norm itself is meant. At t > 0 it is the norm's Moreau envelope, Huber's function: a square within t,
and beyond it as steep as the norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot
from typing import NamedTuple

import torch
from torch import Tensor

from descant.coupling.centers import Center, Stop, median_interval, middle, shares
from descant.coupling.columns import columns, mixture
from descant.coupling.distances import centred_products, norms

_EPS, _TINY = torch.finfo(torch.float64).eps, torch.finfo(torch.float64).tiny
_FAR = 1e300  # differences of such numbers are finite
_MANY = 2**22  # numbers of which a few float64 copies are no small thing
_HALVINGS = 40  # of a step of Newton's that leads too far


def coordinate_median(x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
    """argmin_w sum_k p_k ||w_k - w||_1 for x [K, d], smoothed by t; of several minimisers, the middle one.

    Every coordinate is a problem of its own, whose derivative is piecewise linear and changes sign within t of the
    medians. Newton's steps solve it, with a bisection in every third, which bounds their number.
    """
    found = [_coordinates(block.double(), p, t, stop) for _, block in columns(x)]
    iterations = max((one.iterations for one in found), default=0)
    residual = hypot(*(one.residual for one in found))
    return Center(torch.cat([one.w for one in found]) if found else x.new_zeros(0).double(), residual, iterations)


def _coordinates(x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
    """The same for a few coordinates."""
    low, high = median_interval(x, p)
    middle = (low + high) / 2
    p, x, w = shares(p, x)[:, None], x - middle, torch.zeros_like(middle)  # near w, small numbers: digits are kept
    if t == 0:
        pull, there = (p * x.sign()).sum(0), (p * (x == 0)).sum(0)
        least = (pull.abs() - there).clamp(min=0) + middle * 0  # NaN has a sign of 0, but is not solved
        return Center(middle, float(torch.linalg.vector_norm(least)), 0)
    flat = high - low >= 2 * t  # the derivative is zero from low + t to high - t
    lower, upper, iterations = low - middle - t, high - middle + t, 0
    while True:
        c = (w - x) / t
        slope = (p * c.clamp(-1, 1)).sum(0)
        unsolved = (slope.abs() > stop.tol) & ~flat
        if not unsolved.any() or iterations == stop.cap:
            return Center(middle + w, float(torch.linalg.vector_norm(slope)), iterations)
        lower, upper = torch.where(slope < 0, w, lower), torch.where(slope > 0, w, upper)
        newton = w - slope * t / (p * (c.abs() < 1)).sum(0)
        inside = (newton > lower) & (newton < upper) & (iterations % 3 < 2)
        w = torch.where(unsolved, torch.where(inside, newton, (lower + upper) / 2), w)
        iterations += 1


def geometric_median(x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
    """argmin_w sum_k p_k ||w_k - w||_2 for x [K, d], smoothed by t.

    Weiszfeld's step (to the mean of the points, each weighed by the inverse of its distance) always descends, as
    Vardi and Zhang (2000) have it where it meets a point. It is taken unless a step of Newton's descends further or
    halves the least residual so far; and at t = 0 the nearest point may be the median. The start is the
    coordinate-wise median, which a minority of outliers does not move. Should a majority have moved it so far that
    float64 lacks the digits, the search begins again at the point nearest to where it ended.
    """
    start = middle(x, p)
    if not start.isfinite().all():
        return Center(start, float("nan"), 0)
    if x.shape[1] > 2 * len(x) and x.numel() >= _MANY and (spanned := _in_their_span(x, p, t, stop)) is not None:
        return spanned
    x = x.double().clamp(-_FAR, _FAR)  # what is infinitely far pulls by its direction alone
    found = _search(x, shares(p, x), t, stop, start)
    if not stop.tol < found.residual or found.iterations >= stop.cap:
        return found
    nearest = x[torch.linalg.vector_norm(x - found.w, dim=1).argmin()]
    again = _search(x, shares(p, x), t, Stop(stop.tol, stop.cap - found.iterations), nearest)
    better = min(found, again, key=lambda center: center.residual)
    return Center(better.w, better.residual, found.iterations + again.iterations)


def _in_their_span(x: Tensor, p: Tensor, t: float, stop: Stop) -> Center | None:
    """The same for few points of many coordinates, where no second matrix as large as x is made.

    The median is a mixture of the points, so that their products with each other say all there is to know. Points
    [K, K] with the same products, the rows of a Cholesky factor, take their place in the search; what they lose in
    digits is found when the mixture is looked at among the points themselves. None where it is too much.
    """
    products, bad = centred_products(x)
    length = products.diagonal().sqrt()
    alike = products / (length[:, None] * length).clamp(min=_TINY)  # far points must not drown the others
    alike.diagonal().fill_(1 + 4 * _EPS * len(x))
    factor, failed = torch.linalg.cholesky_ex(alike)
    if bool(bad.any()) or int(failed) or not bool(factor.isfinite().all()):
        return None
    y, p = length[:, None] * factor, shares(p, length)
    found = _search(y, p, t, stop, torch.zeros_like(y[0]))
    distance = norms(y, found.w)
    force = torch.where(distance == 0, 0.0, p / distance.clamp(min=max(t, _TINY)))
    at = distance.argmin()
    w = x[at].double() if distance[at] == 0 and t == 0 else mixture(x, force / force.sum())
    residual = _residual(x, p, w, t)
    return Center(w, residual, found.iterations) if residual <= stop.tol or found.iterations >= stop.cap else None


def _residual(x: Tensor, p: Tensor, w: Tensor, t: float) -> float:
    """The norm of the least subgradient at w, from the points x [K, d] themselves."""
    distance = norms(x, w)
    force = torch.where(distance == 0, 0.0, p / distance.clamp(min=max(t, _TINY)))
    slope = float(torch.linalg.vector_norm(mixture(x, force, w)))
    return slope if t > 0 else max(0.0, slope - float(p[distance == 0].sum()))


def _search(points: Tensor, p: Tensor, t: float, stop: Stop, start: Tensor) -> Center:
    x = points - start  # near the start, small numbers: digits are kept
    here = best = _look(torch.zeros_like(start), x, p, t)
    iterations = 0
    while best.residual > stop.tol and iterations < stop.cap:
        plain = _look(here.w - here.slope / here.force.sum(), x, p, t)
        fall = _change(here, plain, p, t)
        for there in _bold(here, x, p, t):
            if there.residual <= best.residual / 2 or _change(here, there, p, t) < fall:
                break
        else:
            there = plain
            if not torch.linalg.vector_norm(there.w - here.w) > _EPS * torch.linalg.vector_norm(start + here.w):
                break  # float64 can do no better
        here, iterations = there, iterations + 1
        best = min(best, here, key=lambda look: look.residual)
    nearest = best.distance.argmin()
    w = points[nearest] if best.distance[nearest] == 0 else start + best.w  # a point is met to the last bit
    return Center(w, best.residual, iterations)


class _Look(NamedTuple):
    """What there is to see from w: the least subgradient, and the points' directions and distances."""

    w: Tensor  # [d]
    slope: Tensor  # [d]
    residual: float  # its norm
    unit: Tensor  # [K, d] from each point to w
    distance: Tensor  # [K]
    force: Tensor  # [K] p_k / max(distance, t), and 0 for points at w itself


def _look(w: Tensor, x: Tensor, p: Tensor, t: float) -> _Look:
    unit = w - x
    scale = unit.abs().amax(1, keepdim=True).clamp(min=_TINY)  # so that squares do not overflow
    distance = torch.linalg.vector_norm(unit / scale, dim=1) * scale[:, 0]
    unit = unit / distance.clamp(min=_TINY)[:, None]
    reach = distance.clamp(min=t)
    force = torch.where(reach > 0, p / reach, 0.0)
    slope = (p * distance / reach.clamp(min=_TINY)) @ unit
    length = torch.linalg.vector_norm(slope)
    if t == 0:  # a point at w pulls with up to its weight, wherever that is needed
        slope = slope * (1 - p[distance == 0].sum() / length.clamp(min=_TINY)).clamp(min=0)
        length = torch.linalg.vector_norm(slope)
    return _Look(w, slope, float(length), unit, distance, force)


def _change(old: _Look, new: _Look, p: Tensor, t: float) -> float:
    """How the objective changes from one w to another: term by term, for a far point would drown the others."""
    step, both = new.w - old.w, (old.distance + new.distance).clamp(min=_TINY)
    further = (old.distance / both) * (old.unit @ step) + (new.distance / both) * (new.unit @ step)
    if t == 0:
        return float(p @ further)
    a, b = old.distance.clamp(max=t), new.distance.clamp(max=t)  # Huber's function is a^2 / 2t + distance - a
    return float(p @ (further + (b - a) * ((a + b) / (2 * t) - 1)))


def _bold(at: _Look, x: Tensor, p: Tensor, t: float) -> Iterator[_Look]:
    """Where to go rather than a plain step: to the nearest point, or within t of it; and along Newton's step."""
    if at.distance.min() > t:
        point = _look(x[at.distance.argmin()], x, p, t)
        yield point if t == 0 else _look(point.w + _newton(point, t), x, p, t)
    step = _newton(at, t)
    for i in range(_HALVINGS):
        yield _look(at.w + 0.5**i * step, x, p, t)


def _newton(at: _Look, t: float) -> Tensor:
    """Newton's step, by conjugate gradients. The Hessian is sum_k force_k (I - [distance_k > t] u_k u_k')."""
    total, outer = at.force.sum(), torch.where(at.distance > t, at.force, 0.0)
    step, rest = torch.zeros_like(at.slope), -at.slope
    way, square = rest, rest @ rest
    enough = square * min(0.1, at.residual) ** 2
    for _ in range(min(at.unit.shape) + 1):
        if not square > enough:
            break
        bent = total * way - (outer * (at.unit @ way)) @ at.unit
        curvature = way @ bent
        if not curvature > _EPS * total * (way @ way):
            break  # flat in this direction
        step, rest = step + square / curvature * way, rest - square / curvature * bent
        last, square = square, rest @ rest
        way = rest + square / last * way
    return step
