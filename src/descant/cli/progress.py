"""Progress of long work: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

from rich import progress as rich_progress

from descant.cli.console import err
from descant.engine import Collapse, Evaluated, Record, RoundRecord
from descant.runs.grid import Cell, Grid

_PAUSE = 10.0  # seconds between two lines where there is no terminal


class Progress:
    """Shows rounds as they pass: `cell` for one run, `grid` for many."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.bars = quiet, err.is_terminal and not quiet
        self._said = monotonic()
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
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

    def cell(self, label: str, rounds: int) -> Callable[[Record], None]:
        """What `simulate` calls with its records."""
        task = self._bar.add_task(label, total=rounds, note="")

        def show(record: Record) -> None:
            match record:
                case RoundRecord():
                    self._bar.update(task, completed=record.round)
                    self._line(label, record.round, rounds)
                case Evaluated(model="personal") if "test" in record.metric:
                    self._bar.update(task, note=f"{float(record.metric['test'].nanmean()):.3f} on test")
                case Collapse():
                    self._bar.update(task, note=f"collapsed in round {record.round}")

        return show

    def grid(self, grid: Grid) -> Callable[[Cell, Record], None]:
        """What `Grid.run` calls; a cell's bar appears when the cell starts."""
        shown: dict[str, Callable[[Record], None]] = {}

        def show(cell: Cell, record: Record) -> None:
            if cell.key not in shown:
                label = f"{cell.label}, seed {cell.settings.seed} ({len(shown) + 1} of {len(grid.cells)})"
                shown[cell.key] = self.cell(label, cell.settings.rounds)
            shown[cell.key](record)

        return show

    def _line(self, label: str, round: int, rounds: int) -> None:
        if not (self.bars or self.quiet) and (monotonic() - self._said > _PAUSE or round == rounds):
            self._said = monotonic()
            err.print(f"{label}: round {round} of {rounds}")
