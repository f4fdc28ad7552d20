"""Progress of long work: bars on a terminal, a line now and then elsewhere, JSON lines for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

from rich import progress as rich_progress

from descant.cli.console import err
from descant.cli.events import emit, event_of, finished_event
from descant.engine import Account, Collapse, Evaluated, Record, RoundRecord
from descant.experiment import Run
from descant.experiment.grid import Cell, Grid
from descant.experiment.table import human_bytes

_PAUSE = 10.0  # seconds between two lines where there is no terminal


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
                self.test = f"{float(record.metric['test'].nanmean()):.3f} on test"
            case Collapse():
                self.test = f"collapsed in round {record.round}"


class Progress:
    """Shows rounds as they pass: `cell` for one run, `run` for a grid of them."""

    def __init__(self, quiet: bool = False, json: bool = False) -> None:
        self.json, self.bars = json, err.is_terminal and not quiet and not json
        self.lines = not (quiet or json or self.bars)
        self._said = monotonic()
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TextColumn("{task.fields[note]}"),
            rich_progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=err,
            disable=not self.bars,
        )

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def cell(self, label: str, seed: int, rounds: int, place: str = "") -> Callable[[Record], None]:
        """What `simulate` calls with its records."""
        task = self._bar.add_task(f"{label}{place}", total=rounds, note="")
        state, began, first, said = _State(), monotonic(), 0, False

        def show(record: Record) -> None:
            nonlocal first, said
            state.take(record)
            self._bar.update(task, completed=state.round, note=state.note())
            if self.json and (event := event_of(record)) is not None:
                emit({"label": label, "seed": seed, "rounds": rounds} | event)
            if isinstance(record, RoundRecord):
                first = first or record.round
                left = (monotonic() - began) / (state.round - first + 1) * (rounds - state.round)
                if state.round < rounds:
                    self._line(f"{label}{place}", state, rounds, left)
            elif isinstance(record, Evaluated) and record.round == rounds and not said:
                said = True  # the last line has the last evaluation
                self._line(f"{label}{place}", state, rounds, 0.0)

        return show

    def run(self, grid: Grid) -> Iterator[tuple[Cell, Run]]:
        """Run a grid. The first bar is of the whole grid, the second of the cell at work; those done are lines."""
        whole = self._bar.add_task("all runs", total=len(grid.cells), note="", visible=len(grid.cells) > 1)
        shown: dict[str, Callable[[Record], None]] = {}

        def show(cell: Cell, record: Record) -> None:
            if cell.key not in shown:
                place = f", seed {cell.settings.seed} ({grid.cells.index(cell) + 1} of {len(grid.cells)})"
                shown[cell.key] = self.cell(cell.label, cell.settings.seed, cell.settings.rounds, place)
            shown[cell.key](record)

        for cell, run in grid.run(show):
            if cell.key in shown:
                self._settle()
            self._bar.advance(whole)
            self.finished(run)
            yield cell, run

    def _settle(self) -> None:
        """Turn the bar of a cell that is done into a line above, so that the one at work stays on the screen."""
        task = self._bar.tasks[-1]
        if self.bars:
            self._bar.console.print(f"{task.description}: {task.fields['note']}", markup=False, highlight=False)
        self._bar.remove_task(task.id)

    def finished(self, run: Run) -> None:
        if self.json:
            emit(finished_event(run))

    def _line(self, label: str, state: _State, rounds: int, left: float) -> None:
        if self.lines and (monotonic() - self._said > _PAUSE or state.round == rounds):
            self._said = monotonic()
            rest = f", {left:.0f} s left" if state.round < rounds else ""
            err.print(f"{label}: round {state.round} of {rounds}, {state.note()}{rest}", markup=False)
