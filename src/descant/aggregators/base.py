"""The contract of an aggregator: leaves [S, ...] in, the same leaves without the client axis out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

Record = Callable[[str, float], None]  # report a figure of the round; figures of one name add up


def unheard(name: str, value: float) -> None:
    """Report to nobody."""


@dataclass(frozen=True, kw_only=True)
class Aggregator(ABC):
    """How S messages become one. The first leaf is primary: what selects among messages looks at that one."""

    name: ClassVar[str]

    @abstractmethod
    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Record = unheard
    ) -> dict[str, Tensor]:
        """Combine leaves [S, ...]; `weights` [S] are the senders' own claims (numbers of examples)."""
