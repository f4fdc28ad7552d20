"""Whether numbers are finite: asked of a GPU while it works, and read once, at the end of a round.

Whoever reads a number from a GPU waits until all that was asked of it before is done, and the GPU waits after that
until it is asked for more. So the questions of a round are put together, and their answers are read in one go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from descant.trees import Tree


class Kept(NamedTuple):
    """What clients hold after their work, if it is finite."""

    who: Tensor  # [K] their numbers
    method: Tree  # the method's leaves [K, ...]
    rows: Tree  # all that is to be kept


def all_finite(leaves: Mapping[str, Tensor]) -> Tensor:
    """Which of some leaves hold finite numbers only, one flag each; they are not read here."""
    return torch.stack([leaf.isfinite().all() for leaf in leaves.values()])


def read(*flags: Tensor) -> list[Tensor]:
    """Flags from a GPU, in the processor's memory. It is waited for once."""
    return list(torch.split(torch.cat(flags).cpu(), [len(each) for each in flags]))
