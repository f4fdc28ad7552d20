"""Messages that the tests of robust aggregators make, and what an aggregator makes of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from descant.aggregators import (
    Aggregator,
)
from descant.context import Context
from descant.mail import Mail
from descant.task import Layout


def context(seed: int = 0) -> Context:
    return Context(3, seed, 20, Layout((), ()), torch.zeros(4, dtype=torch.float64)).of_server()


def mail_of(leaves: dict[str, Tensor], seed: int = 0, references: bool = True) -> Mail:
    S = len(next(iter(leaves.values())))
    mail = Mail.of(leaves, torch.arange(S), context(seed))
    if references:
        object.__setattr__(mail, "references", {n: torch.zeros_like(leaf[:1]) for n, leaf in leaves.items()})
    return mail


def drawn(s: int, seed: int, d: int = 4) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "delta": torch.randn(s, d, generator=g, dtype=torch.float64),
        "matrix": torch.randn(s, 2, 3, generator=g, dtype=torch.float64),
    }


def combined(aggregator: Aggregator, leaves: dict[str, Tensor], seed: int = 0) -> dict[str, np.ndarray]:
    return {n: v.numpy() for n, v in aggregator.combine(context(seed), {}, mail_of(leaves, seed))[1].items()}
