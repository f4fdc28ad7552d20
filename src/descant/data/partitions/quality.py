"""Quality skew: the same kind of examples everywhere, with more and more noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.partitions.iid import IID
from descant.draws import normal
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class Quality(IID):
    """Quality skew (FLAME, section VI-A): equal parts, and Gaussian noise Gau(sigma i / m) on client i's inputs.

    i counts from 0, so that client 0 is clean.  `reads` says what sigma i / m is of the noise: its standard
    deviation ("std", as in the authors' code) or its "variance" (as in their text).  The noise belongs to the
    example: the same at every look, in training and in tests.
    """

    name: ClassVar[str] = "quality"

    sigma: float = 0.1
    reads: Literal["std", "variance"] = "std"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "sigma", self.sigma >= 0, "zero or more")
        require(self, "reads", self.reads in ("std", "variance"), "'std' or 'variance'")

    def std(self, client: int) -> float:
        level = self.sigma * client / self.clients
        return level if self.reads == "std" else float(level**0.5)

    def change(self, inputs: Tensor, examples: Tensor, client: int, seed: int) -> Tensor:
        if not inputs.is_floating_point():
            raise DataError(f"inputs are {inputs.dtype}: noise needs floating inputs, so choose another partition")
        if not (std := self.std(client)):
            return inputs
        places = torch.arange(inputs[0].numel())
        noise = normal(seed, "quality", client, examples[:, None], places)  # [n, places of an example]
        return inputs + (std * noise).to(inputs.dtype).view(inputs.shape)
