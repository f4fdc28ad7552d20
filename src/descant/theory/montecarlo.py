"""Estimates by simulation: their means, their standard errors, and where their draws come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from descant.draws import seed_of

Array = npt.NDArray[np.float64]
Value = TypeVar("Value", float, Array)  # a closed form is of a number, or of each number of an array


@dataclass(frozen=True)
class Estimate:
    """The mean of independent trials, and its standard error."""

    mean: float
    se: float

    @classmethod
    def of(cls, values: Array) -> Estimate:  # [trials]
        return cls(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5))

    def off(self, exact: float) -> float:
        """How many standard errors the mean lies above `exact`."""
        return (self.mean - exact) / self.se


def generator(seed: int, name: str) -> np.random.Generator:
    """The draws that one simulation makes: they do not depend on what else is simulated."""
    return np.random.default_rng(seed_of(seed, "theory", name))


def mix(lam: Value, b: float) -> tuple[Value, Value]:
    """The weights of a client's own estimate and of the reference in (b own + lam reference) / (b + lam)."""
    own = b / (b + lam)
    return own, 1 - own
