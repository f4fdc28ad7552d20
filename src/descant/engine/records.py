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
    lost: int  # messages of stragglers that the method drops
    refused: int  # messages dropped because they were not finite
    bytes_up: int
    bytes_down: int
    gradients: int  # minibatch gradients, over all clients
    examples: int  # example gradients, over all clients
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)  # what the method reported


@dataclass(frozen=True)
class Evaluated:
    """One model of every client after a round: loss and metric [N] on each part that was asked for."""

    round: int  # 0 is before training
    model: str  # "personal", "shared" or "selected"
    loss: dict[str, Tensor]
    metric: dict[str, Tensor]


@dataclass(frozen=True)
class Account:
    """What each client has spent up to a round [N]."""

    round: int
    gradients: Tensor
    examples: Tensor
    bytes_up: Tensor
    bytes_down: Tensor


@dataclass(frozen=True)
class Collapse:
    """The run diverged: a result, with the round in which it happened."""

    round: int
    why: str


@dataclass(frozen=True)
class Snapshot:
    """A simulation between two rounds, without what its store has settled already."""

    round: int
    server: dict[str, Tensor]
    statistics: Tensor  # [b] of the shared model
    clients: Tensor  # [K] who changed
    rows: dict[str, Tensor]  # their state [K, ...]
    spent: Tensor  # [K, kinds] of the ledger
