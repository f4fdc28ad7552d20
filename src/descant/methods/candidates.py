"""Several models a client, and the choice among them on the client's own validation data."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.methods.base import LocalView


def choose(models: Tensor, local: LocalView, *, least: int, otherwise: int) -> Tensor:
    """Which [K] of the models [K, C, d] has the lowest loss on each client's validation data, the first of equals.

    A client with fewer than `least` validation examples takes the model number `otherwise`.
    """
    losses = torch.stack([local.losses(x, "valid") for x in models.unbind(1)], 1)  # [K, C]
    best = losses.nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(1)
    return torch.where(local.part("valid").mask.sum(1) >= least, best, otherwise)


def pick(models: Tensor, choice: Tensor) -> Tensor:
    """The chosen one [K, d] of each client's models [K, C, d]."""
    return models[torch.arange(len(models), device=models.device), choice]
