"""Which models are looked at, on which data and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from descant.errors import require

Model = Literal["personal", "shared"]
PARTS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What to evaluate: after `every` that many rounds (and before the first, and after the last), on `parts`.

    `models` are "personal", what a client deploys, and "shared", the global model where the method has one of its
    own. Losses are the task's, without any penalty.
    """

    every: int = 1
    parts: tuple[str, ...] = PARTS
    models: tuple[Model, ...] = ("personal", "shared")

    def __post_init__(self) -> None:
        require(self, "every", self.every >= 1, "a positive number of rounds")
        require(self, "parts", len(self.parts) > 0 and set(self.parts) <= set(PARTS), f"some of {PARTS}")
        known = ("personal", "shared")
        require(self, "models", len(self.models) > 0 and set(self.models) <= set(known), f"some of {known}")

    def due(self, round: int, rounds: int) -> bool:
        return round % self.every == 0 or round == rounds
