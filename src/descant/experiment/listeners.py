"""Who looks on at a run: each callback is told what happens, and may ask to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from descant.engine import Account, Record, RoundRecord, Simulation
from descant.errors import SettingError
from descant.experiment.allowed import Allowed, refusal
from descant.experiment.callback import Callback, Stop
from descant.experiment.history import History, Stopped
from descant.experiment.run import Run


@dataclass(frozen=True)
class Callbacks(Allowed):
    """Any number of callbacks; one may stand alone."""

    @property
    def what(self) -> str:
        return "a list of callbacks: objects of classes made from descant.callbacks.Callback"

    def check(self, name: str, value: Any) -> tuple[Callback, ...]:
        if isinstance(value, Callback):
            return (value,)
        if not isinstance(value, list | tuple):
            raise refusal(name, value, self.what)
        for i, one in enumerate(value):
            if isinstance(one, type) and issubclass(one, Callback):
                remedy = f"make an object of it, as in {one.__name__}()"
                raise SettingError(f"{name}[{i}] = {one.__name__}: it is a class; {remedy}")
            if not isinstance(one, Callback):
                raise refusal(f"{name}[{i}]", one, "an object of a class made from descant.callbacks.Callback")
        return tuple(value)


class Listeners:
    """The callbacks of one run. `with` them, those that were started are told of an error, too."""

    def __init__(self, callbacks: Iterable[Callback], history: History, folder: Path | None) -> None:
        self._callbacks, self._history, self._folder = tuple(callbacks), history, folder
        self._started: list[Callback] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for callback in self._started if error is not None else ():
            with suppress(Exception):  # the first error is the one to tell
                callback.on_error(error)  # type: ignore[arg-type]

    def start(self, config: dict[str, Any], before: Iterable[Record], simulation: Simulation) -> None:
        """A run begins, or goes on from where `before` had brought it."""
        for callback in self._callbacks:
            self._started.append(callback)
            self._tell(callback, "on_start", deepcopy(config))
        for record in before if self._callbacks else ():
            self.take(record, simulation)

    def take(self, record: Record, simulation: Simulation) -> None:
        """Pass a record on, and stop the simulation where somebody asks for it."""
        figures = _figures(self._history, record.round) if isinstance(record, Account) and self._callbacks else {}
        for callback in self._callbacks:
            asked = None
            if isinstance(record, RoundRecord):
                asked = self._tell(callback, "on_round", record)
            elif isinstance(record, Account):  # which closes an evaluation
                asked = self._tell(callback, "on_evaluated", record.round, dict(figures))
            if asked is not None:
                self._stop(callback, asked, simulation)

    def end(self, run: Run) -> None:
        for callback in self._callbacks:
            self._tell(callback, "on_end", run)

    def _stop(self, callback: Callback, asked: Any, simulation: Simulation) -> None:
        if not isinstance(asked, Stop):
            raise SettingError(
                f"the callback {type(callback).__name__} returned {asked!r}: it must return nothing, or "
                "descant.callbacks.Stop('why') to end the run"
            )
        if simulation.round < simulation.last:  # the last round ends by itself, and the first who asks is heard
            simulation.stop()
            self._history.stopped = Stopped(simulation.round, asked.why)

    def _tell(self, callback: Callback, what: str, *told: Any) -> Any:
        heard: Callable[..., Any] = getattr(callback, what)
        try:
            return heard(*told)
        except Exception as error:
            note = f"It was raised by the callback {type(callback).__name__}, in {what}."
            if self._folder is not None and what != "on_end":
                note += f" What was committed of the run in {self._folder} can be resumed."
            error.add_note(note)
            raise


def _figures(history: History, round: int) -> dict[str, float]:
    """Everything that was evaluated after a round, by MODEL.PART_MEASURE.STATISTIC."""
    return {
        f"{model}.{column}.{statistic}": value
        for model, rounds in history.evaluated.items()
        for column in rounds.get(round, ())
        for statistic, value in history.figure(model, round, column).items()
    }
