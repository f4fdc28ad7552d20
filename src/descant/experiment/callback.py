"""What a run tells while it goes on: the protocol of callbacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from descant.engine import RoundRecord

if TYPE_CHECKING:
    from descant.experiment.run import Run


@dataclass(frozen=True)
class Stop:
    """What a callback returns to end a run after the round that it was told of. `why` is kept with the run."""

    why: str


class Callback:
    """Looks on while a run goes on. Override what you need; the functions here do nothing.

    One object may look on at several runs, one after the other: `on_start` begins anew. A run that is resumed tells
    again what had been committed before, so that a callback is told the same whether or not the run was
    interrupted. An exception ends the run with what was committed, and `resume` goes on from there.

    >>> class Bytes(Callback):
    ...     def on_start(self, config):
    ...         self.sent = 0
    ...
    ...     def on_round(self, record):
    ...         self.sent += record.bytes_up
    ...         return Stop("the budget is spent") if self.sent > 1_000_000 else None
    """

    def on_start(self, config: dict[str, Any]) -> None:
        """A run begins. `config` is all that it follows from, and how it is carried out: that of `run.config`."""

    def on_round(self, record: RoundRecord) -> Stop | None:
        """A round was played: its cohort, messages, bytes, gradients and seconds, as in a row of `run.rounds`."""
        return None

    def on_evaluated(self, round: int, figures: dict[str, float]) -> Stop | None:
        """A round was evaluated, 0 before training. Names are those of `run.summary()` without the round, as in
        'personal.valid_accuracy.mean'; figures are of the benign clients."""
        return None

    def on_end(self, run: Run) -> None:
        """The run has ended, and is saved: to its last round, `run.stopped` or collapsed (`run.collapse`)."""

    def on_error(self, error: BaseException) -> None:
        """The run ends by an error or an interruption, here or elsewhere: to close what `on_start` opened."""

    def identity(self) -> Any:
        """What a result follows from, as plain data, for a callback that stops runs; nothing for one that looks on.

        It tells the cells of a comparison apart: one that was stopped is not read where no one would stop it.
        """
        return None
