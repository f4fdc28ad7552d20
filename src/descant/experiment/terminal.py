"""Bars on a terminal, by rich: imported by whoever wants them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import progress
from rich.console import Console

from descant.experiment.screens import Screen, Shown


class Terminal(Screen):
    """A bar for each run at work; those that are done become lines above."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console or Console(stderr=True, highlight=False),
        )
        self._tasks: dict[Shown, progress.TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.__exit__(kind, error, trace)

    def begin(self, name: str, total: int, *, unit: str = "round", visible: bool = True) -> Shown:
        shown = super().begin(name, total, unit=unit, visible=visible)
        self._tasks[shown] = self._bars.add_task(name, total=total, note="", visible=visible)
        return shown

    def update(self, shown: Shown) -> None:
        self._bars.update(self._tasks[shown], completed=shown.done, note=shown.note)

    def settle(self, shown: Shown) -> None:
        self._bars.console.print(f"{shown.name}: {shown.note}", markup=False, highlight=False)
        self._bars.remove_task(self._tasks.pop(shown))
