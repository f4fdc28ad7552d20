"""Progress of runs: what is known of each, and its bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from descant.engine import Account, Collapse, Evaluated, Record, RoundRecord
from descant.experiment.allowed import Allowed, refusal
from descant.experiment.run import Run
from descant.experiment.screens import Screen, Shown, screen_here
from descant.experiment.table import human_bytes

if TYPE_CHECKING:
    from descant.experiment.cells import Cell
    from descant.experiment.grid import Grid


@dataclass(frozen=True)
class Watched(Allowed):
    """Whether to show progress, or a function that does."""

    @property
    def what(self) -> str:
        return "true or false, a function, or nothing"

    def check(self, name: str, value: Any) -> Any:
        if value is not None and not isinstance(value, bool) and not callable(value):
            raise refusal(name, value, self.what)
        return value


@dataclass
class _State:
    """What is known of a run that goes on."""

    round: int = 0
    sent: int = 0  # bytes, up and down
    test: str = ""

    def note(self) -> str:
        return ", ".join(part for part in (self.test, human_bytes(self.sent)) if part)

    def take(self, record: Record) -> None:
        match record:
            case RoundRecord():
                self.round = record.round
                self.sent += record.bytes_up + record.bytes_down
            case Account():  # the whole account, so that it is right after a resume too
                self.sent = int(record.bytes_up.sum() + record.bytes_down.sum())
            case Evaluated(model="personal") if "test" in record.metric:
                self.test = f"{record.mean('test'):.3f} on test"
            case Collapse():
                self.test = f"collapsed in round {record.round}"


class Progress:
    """Shows rounds as they pass: `cell` for one run, `run` for a grid of them."""

    def __init__(self, screen: Screen | None = None) -> None:
        self.screen = screen or screen_here()
        self._at_work: Shown | None = None

    def __enter__(self) -> Self:
        self.screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.screen.__exit__(kind, error, trace)

    def cell(self, label: str, seed: int, rounds: int, place: str = "") -> Callable[[Record], None]:
        """What `simulate` calls with its records."""
        shown = self._at_work = self.screen.begin(f"{label}{place}", rounds)
        state = _State()

        def show(record: Record) -> None:
            state.take(record)
            shown.advance(state.round, state.note())
            self.screen.update(shown)

        return show

    def run(self, grid: Grid) -> Iterator[tuple[Cell, Run]]:
        """Run a grid. The first bar is of the whole grid, the second of the cell at work; those done are lines."""
        several = len(grid.cells) > 1
        whole = self.screen.begin("all runs", len(grid.cells), unit="run", visible=several)
        shown: dict[int, Callable[[Record], None]] = {}

        def show(cell: Cell, record: Record) -> None:
            if id(cell) not in shown:
                place = f", seed {cell.seed} ({grid.cells.index(cell) + 1} of {len(grid.cells)})"
                shown[id(cell)] = self.cell(cell.label, cell.seed, cell.rounds, place)
            shown[id(cell)](record)

        for cell, run in grid.run(show):
            if id(cell) in shown and self._at_work is not None:
                self.screen.settle(self._at_work)
            whole.advance(whole.done + 1)
            self.screen.update(whole)
            self.finished(run)
            yield cell, run

    def finished(self, run: Run) -> None:
        """A run has ended."""


@contextmanager
def watched(
    progress: Callable[[Record], None] | bool | None, label: str, seed: int, rounds: int
) -> Iterator[Callable[[Record], None] | None]:
    """What is called with every record of a run: a function as it is, a bar where progress is True, or nothing."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    else:
        with Progress() as bars:
            yield bars.cell(label, seed, rounds)
