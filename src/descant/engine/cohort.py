"""Who takes part in a round, and how much of its work each does."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from descant.draws import uniform
from descant.errors import SettingError

Sampling = Literal["uniform", "size"]
_SPARSE = 8  # a cohort is small where it is at most one client in so many


def cohort_size(cohort: int | float | None, clients: int) -> int:
    """The number of clients a round: a number, a fraction, or everyone."""
    if cohort is None:
        return clients
    if isinstance(cohort, bool) or not (0 < cohort <= 1 if isinstance(cohort, float) else 1 <= cohort <= clients):
        raise SettingError(
            f"cohort = {cohort!r}: it must be a number of clients from 1 to {clients}, "
            "a fraction above 0 and at most 1.0, or nothing for everyone"
        )
    return max(1, round(cohort * clients)) if isinstance(cohort, float) else cohort


def sample(seed: int, round: int, size: int, weights: Tensor) -> Tensor:
    """`size` of the clients without replacement, in proportion to `weights` [N], in ascending order.

    Client k's key is u_k^(1/weight_k) with u_k its own draw, and the largest keys win (Efraimidis and Spirakis,
    2006); with equal weights that is a uniform draw. Clients of no weight are never drawn: where too few have one,
    the cohort is smaller, and may be empty.
    """
    possible = weights > 0  # not so for NaN
    size = min(size, int(possible.sum()))
    u = uniform(seed, "cohort", round, torch.arange(len(weights), device=weights.device))
    keys = torch.where(possible, u.log() / weights.double(), -torch.inf)
    return keys.topk(size).indices.sort().values


def sample_uniform(seed: int, round: int, size: int, clients: int) -> Tensor:
    """`size` of so many clients without replacement, each as likely as any, in ascending order.

    A small cohort is the first different ones of a sequence of draws, so that a round costs what its cohort does
    and not what the federation does; for a larger one every client draws a key (`sample`).
    """
    if size == clients:
        return torch.arange(clients)
    if size * _SPARSE > clients:
        return sample(seed, round, size, torch.ones(clients))
    draws = size
    while True:
        draws *= 2  # a longer sequence begins with the shorter one
        place = torch.arange(draws)
        drawn = (uniform(seed, "cohort", round, place) * clients).long()
        values, order = drawn.sort(stable=True)
        again = torch.zeros_like(values, dtype=torch.bool)
        again[1:] = values[1:] == values[:-1]
        first = order[~again].sort().values  # places that bring somebody new
        if len(first) >= size:
            return drawn[first[:size]].sort().values


def finished_share(seed: int, round: int, who: Tensor, stragglers: float) -> Tensor:
    """The share (0, 1] of its work that each client of `who` finishes: 1, or a uniform draw for stragglers."""
    if not stragglers:
        return torch.ones(len(who), dtype=torch.float64, device=who.device)
    straggles = uniform(seed, "straggler", round, who) < stragglers
    return torch.where(straggles, uniform(seed, "share", round, who), 1.0)
