"""Progress on the command line: as on every terminal, or as JSON lines for machines."""

from __future__ import annotations

from collections.abc import Callable

from descant.cli.console import err
from descant.cli.events import emit, event_of, finished_event
from descant.engine import Record
from descant.experiment import Run
from descant.experiment import progress as shared
from descant.experiment.screens import Lines, Screen, Silent
from descant.experiment.terminal import Terminal


class Progress(shared.Progress):
    """Shows rounds as they pass: `cell` for one run, `run` for a grid of them."""

    def __init__(self, quiet: bool = False, json: bool = False) -> None:
        super().__init__(_screen(quiet or json))
        self.json = json

    def cell(self, label: str, seed: int, rounds: int, place: str = "") -> Callable[[Record], None]:
        shown = super().cell(label, seed, rounds, place)

        def show(record: Record) -> None:
            shown(record)
            if self.json and (event := event_of(record)) is not None:
                emit({"label": label, "seed": seed, "rounds": rounds} | event)

        return show

    def finished(self, run: Run) -> None:
        if self.json:
            emit(finished_event(run))


def _screen(silent: bool) -> Screen:
    if silent:
        return Silent()
    return Terminal(err) if err.is_terminal else Lines(lambda text: err.print(text, markup=False, soft_wrap=True))
