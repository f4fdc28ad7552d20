"""How many attackers a defence assumes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from descant.aggregators.base import Aggregator
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class Assuming(Aggregator):
    """A defence against `f` attackers among the S messages of a round: a number, or a share of S, rounded up.

    None is the most that it can survive. A number that is too large for a small round is cut to that; a share that
    would be too large in every round is refused.
    """

    f: int | float | None = 0.2

    # The least number of messages for f attackers is `per_attacker` f + `beside`.
    per_attacker: ClassVar[int] = 2
    beside: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        below, share = self.share_below, isinstance(self.f, float)
        right = self.f is None or (0 <= self.f < below if share else self.f >= 0)
        what = f"a number of attackers, a share of messages below {below:g}, or nothing for the most it survives"
        require(self, "f", right, what)

    @property
    def share_below(self) -> float:
        """Shares of the messages from this one on are refused."""
        return 1 / self.per_attacker

    def asked(self, messages: int) -> int:
        """The number of attackers among so many messages that f says, whether or not it can be survived."""
        if self.f is None:
            return self.most(messages)
        return ceil(round(self.f * messages, 9)) if isinstance(self.f, float) else self.f

    def most(self, messages: int) -> int:
        """The most attackers that can be assumed among so many messages."""
        return max(0, (messages - self.beside) // self.per_attacker)

    def attackers(self, messages: int) -> int:
        """The number of attackers that is assumed among so many messages."""
        return min(self.most(messages), self.asked(messages))
