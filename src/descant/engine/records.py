"""What a run reports, as the engine makes it: plain numbers and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class RoundRecord:
    """One round: who took part, what travelled, what was computed."""

    round: int  # 1 is the first
    cohort: int  # clients drawn
    received: int  # messages that reached the server and were used
    lost: int  # messages that were lost on the way, or whose sender did not finish its work in time
    refused: int  # messages that could not be encoded or decoded, or were not finite
    bytes_up: int
    bytes_down: int
    gradients: int  # minibatch gradients, over all clients
    examples: int  # example gradients, over all clients
    scored: int  # example losses that the method asked for, over all clients
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)  # what the method reported


TAKEN = frozenset(RoundRecord.__dataclass_fields__)  # columns of a round's row, which no figure may be called


@dataclass(frozen=True)
class Evaluated:
    """One model of every client after a round: loss and metric [N] on each part that was asked for."""

    round: int  # 0 is before training
    model: str  # "personal", "shared" or "selected"
    loss: dict[str, Tensor]
    metric: dict[str, Tensor]
    counted: Tensor | None = None  # [N] whom figures are of: the benign clients that take part; None is all
    success: dict[str, Tensor] = field(default_factory=dict)  # how often a backdoor works, by part

    def mean(self, part: str, loss: bool = False) -> float:
        """The mean metric, or loss, on a part, over those who are counted and have it."""
        return self._mean((self.loss if loss else self.metric)[part])

    def mean_success(self, part: str) -> float:
        """How often a backdoor works on a part, as the mean over those who are counted and have it."""
        return self._mean(self.success[part])

    def _mean(self, values: Tensor) -> float:
        return float((values if self.counted is None else values[self.counted]).nanmean())


@dataclass(frozen=True)
class Account:
    """What each client has spent up to a round [N]. It comes when everything of a round has been evaluated."""

    round: int
    gradients: Tensor
    examples: Tensor
    scored: Tensor
    bytes_up: Tensor
    bytes_down: Tensor


@dataclass(frozen=True)
class Collapse:
    """The run diverged: a result, with the round in which it happened."""

    round: int
    why: str


class CollapseError(Exception):
    """The federation has diverged; a round ends with it, and a run with a `Collapse`."""


@dataclass(frozen=True)
class Snapshot:
    """A simulation between two rounds, without what its stores have settled already."""

    round: int
    server: dict[str, Tensor]  # what the server and the attackers hold, by owner
    rows: dict[str, tuple[Tensor, dict[str, Tensor]]]  # store -> who changed [K], and their rows [K, ...]
    spent: Tensor  # [K, kinds] of the ledger, of those who changed among "clients"
