"""The contract of an aggregator: leaves [S, ...] in, the same leaves without the client axis out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.fields import Checked
from descant.mail import Mail
from descant.trees import Tree

RecordFigure = Callable[[str, float], None]  # report a figure of the round; figures of one name add up


def unheard(name: str, value: float) -> None:
    """Report to nobody."""


@dataclass(frozen=True, kw_only=True)
class Aggregator(Checked, ABC):
    """How S messages become one. The first leaf is primary: what selects among messages looks at that one.

    Most are a call on leaves. One that remembers something from round to round, or that needs to know the round,
    the senders or what they moved away from, overrides `combine`.
    """

    name: ClassVar[str]
    needs: ClassVar[Literal["sums", "rows"]] = "rows"  # "sums": sums over the messages are all it looks at
    reads: ClassVar[tuple[str, ...]] = ()  # what clients send along for it: "loss"
    weighs: ClassVar[bool] = True  # it heeds the weights that the method gives to messages
    updates: ClassVar[bool] = False  # it looks at what messages moved away from (`Mail.references`)
    remembers: ClassVar[bool] = False  # what it does in a round depends on messages of the rounds before

    @abstractmethod
    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> Tree:
        """Combine leaves [S, ...]; `weights` [S] are the senders' own claims (numbers of examples)."""

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        """The aggregator's new memory (empty at first), and the leaves of the mail combined."""
        return state, self(mail.leaves, mail.weights, mail.record)
