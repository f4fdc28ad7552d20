"""Which models are looked at, on which data and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from descant.engine.records import Evaluated
from descant.errors import require

Model = Literal["personal", "shared", "selected"]
MODELS = ("personal", "shared", "selected")
PARTS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What to evaluate: after `every` that many rounds (and before the first, and after the last), on `parts`.

    `models` are "personal", what a client deploys, and "shared", the global model where the method has one of its
    own. Losses are the task's, without any penalty. "selected" is the better of these two on the client's own
    validation data, and needs them: the metric decides, between equals the loss, and without validation data it is
    the personal one. A method with one model has nothing to select.
    """

    every: int = 1
    parts: tuple[str, ...] = PARTS
    models: tuple[Model, ...] = ("personal", "shared")

    def __post_init__(self) -> None:
        require(self, "every", self.every >= 1, "a positive number of rounds")
        require(self, "parts", len(self.parts) > 0 and set(self.parts) <= set(PARTS), f"some of {PARTS}")
        require(self, "models", len(self.models) > 0 and set(self.models) <= set(MODELS), f"some of {MODELS}")
        if "selected" in self.models:
            require(self, "models", set(self.models) == set(MODELS), "all three where one is to be 'selected'")
            require(self, "parts", "valid" in self.parts, "parts with 'valid' where a model is to be 'selected'")

    def due(self, round: int, rounds: int) -> bool:
        return round % self.every == 0 or round == rounds


def select(personal: Evaluated, shared: Evaluated, higher_is_better: bool) -> Evaluated:
    """The better of each client's two models on its validation data, as both were evaluated."""
    ours, theirs = personal.metric["valid"], shared.metric["valid"]  # [N]; NaN, which is never better, without data
    better = theirs > ours if higher_is_better else theirs < ours
    takes = better | ((theirs == ours) & (shared.loss["valid"] < personal.loss["valid"]))

    def of(own: dict[str, Tensor], common: dict[str, Tensor]) -> dict[str, Tensor]:
        return {part: torch.where(takes, common[part], own[part]) for part in own}

    return Evaluated(personal.round, "selected", of(personal.loss, shared.loss), of(personal.metric, shared.metric))
