"""Hyper-parameters that depend on the round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from descant.errors import require
from descant.fields import Checked


@dataclass(frozen=True, kw_only=True)
class ByRound(Checked, ABC):
    """A positive number for each round, the first of which is 1."""

    name: ClassVar[str]

    @abstractmethod
    def at(self, round: int) -> float:
        """The value in a round."""


@dataclass(frozen=True, kw_only=True)
class PowerLaw(ByRound):
    """scale (shift + t)^power, with t = 0 in the first round: 1/t with power = -1, 1/sqrt(t) with -0.5."""

    name: ClassVar[str] = "power"

    scale: float
    shift: float = 1.0
    power: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "scale", self.scale > 0, "a positive number")
        require(self, "shift", self.shift > 0, "a positive number")
        require(self, "power", self.power == self.power, "a number")

    def at(self, round: int) -> float:
        return self.scale * float((self.shift + round - 1) ** self.power)


@dataclass(frozen=True, kw_only=True)
class Stages(ByRound):
    """Pairs (round, value): each value holds from its round on, until the next one's."""

    name: ClassVar[str] = "stages"

    values: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        rounds = [first for first, _ in self.values]
        rises = rounds[:1] == [1] and all(a < b for a, b in pairwise(rounds))
        require(self, "values", rises, "pairs (round, value) whose rounds begin with 1 and rise")
        require(self, "values", all(value > 0 for _, value in self.values), "pairs with positive values")

    def at(self, round: int) -> float:
        return next(value for first, value in reversed(self.values) if first <= round)


SCHEDULES: dict[str, type[ByRound]] = {s.name: s for s in (PowerLaw, Stages)}


def in_round(value: float | ByRound, round: int) -> float:
    """A setting that may depend on the round, in one."""
    return value.at(round) if isinstance(value, ByRound) else value
