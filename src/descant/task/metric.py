"""A metric: a figure of a client, by what it is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from descant.errors import TaskError, require
from descant.task.tallies import CountTally, Mean, OutputTally, Tally

Over = Literal["examples", "counts", "outputs"]


@dataclass(frozen=True)
class Metric:
    """A figure of every client, computed by `of` from what `over` names.

    "examples": `of(outputs, targets)` gives one number an example, and a client's figure is their mean (accuracy).
    "counts": `of(counts)` gives [K] from how often each class was right (`counts.hits`), `predicted` and there
    (`actual`), [K, C] each (F1). "outputs": `of(given)` gives [K] from the `given.outputs` [M, C] for all examples,
    their `labels` [M] and the client that is the `owner` of each [M], one of `given.clients` (AUC).

    Of the latter two, NaN says that a client's examples do not define its figure. It is left out of all figures
    across clients.

    >>> recall = Metric("recall", lambda c: (c.hits / c.actual)[:, 1], higher_is_better=True, over="counts")
    """

    name: str
    of: Callable[..., Tensor]
    higher_is_better: bool
    over: Over = "examples"

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and self.name and not set(self.name) & set(".@\n")
        require(self, "name", bool(named), "a word without . and @, which part the names of figures")
        require(self, "of", callable(self.of), "a function")
        require(self, "name", self.name != "loss", "another name than that of the loss's own figures")
        kinds = ("examples", "counts", "outputs")
        require(self, "over", self.over in kinds, f"one of {', '.join(kinds)}")

    @property
    def may_be_undefined(self) -> bool:
        """Whether NaN is no failure, but says that a client's examples do not define the figure."""
        return self.over != "examples"

    def tally(self, clients: int, device: torch.device) -> Tally:
        """What computes the figure of so many clients, block after block of their examples."""
        if self.over == "examples":
            return Mean(self.of, clients, device)
        return (CountTally if self.over == "counts" else OutputTally)(self.of, self.name, clients)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse a metric that cannot be computed from such outputs [B, ...] and targets [B, ...] of a client."""
        if self.over == "examples":
            found = self.of(outputs, targets)
            if not isinstance(found, Tensor) or found.shape != targets.shape[:1]:
                raise TaskError("the metric must return one number an example, a vector of the batch's length")
            return
        tally, real = self.tally(1, outputs.device), torch.ones(1, len(targets), device=outputs.device)
        tally.add(outputs[None], targets[None], real > 0)
        tally.result(real.sum(1))
