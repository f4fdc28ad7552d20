"""What the commands that run a grid have in common: what they take, how they run it, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from descant.cli.console import err
from descant.errors import BusyError, SettingError

if TYPE_CHECKING:
    from descant.experiment import Run
    from descant.experiment.cells import Cell
    from descant.experiment.grid import Grid

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="settings")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="override a setting of the file")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress")]
Json = Annotated[bool, typer.Option("--json", help="progress and results as JSON lines, for programs")]
GridFolder = Annotated[Path | None, typer.Option("--out", "-o", help="the grid's folder; default: runs/FILE")]
First = Annotated[int, typer.Option(help="choose rounds from this one on")]


def grid_folder(folder: Path | None, file: Path) -> Path:
    """Where the runs of a grid are left."""
    return folder or Path("runs") / file.stem


def carried_out(grid: Grid, first: int, quiet: bool, as_json: bool) -> list[tuple[Cell, Run]]:
    """The cells of a grid with their runs, while progress is shown; a wrong `first` is refused before."""
    from descant.cli.progress import Progress

    _check_first(first, (cell.rounds for cell in grid.cells))
    with interruptible(), Progress(quiet, as_json) as progress:
        return list(progress.run(grid))


def seeds_of(grid: Grid) -> int:
    """How many seeds a grid was asked for."""
    return len({cell.seed for cell in grid.cells})


def end_whole(grid: Grid, results: Sequence[tuple[Cell, Run]]) -> None:
    """End with status 2 where cells were left out, which were named when their turn came: not all is there."""
    if len(results) < len(grid.cells):
        raise typer.Exit(2)


def _check_first(first: int, rounds: Iterable[int]) -> None:
    """Refuse a first round that some of the runs to come, of so many `rounds`, would not have."""
    last = min(rounds)
    if not 0 <= first <= last:
        raise SettingError(f"--first {first}: it must be from 0 to {last}, the last round of a run")


class Rule(StrEnum):
    """The rounds that figures are of."""

    CHOSEN = "chosen"
    LAST = "last"
    BEST = "best-on-test"

    @property
    def asked(self) -> Literal["last", "best_on_test"] | None:
        """What tables are asked for; nothing is their default."""
        return None if self is Rule.CHOSEN else "last" if self is Rule.LAST else "best_on_test"


WhichRound = Annotated[
    Rule, typer.Option(help="the round chosen on validation data, the last, or the papers' best on test")
]


@contextmanager
def interruptible() -> Iterator[None]:
    """Say how to go on, when the user interrupts what can be gone on with, or other processes are at work on it."""
    try:
        yield
    except BusyError as error:
        err.print(f"descant: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3) from None
    except KeyboardInterrupt:
        err.print("descant: interrupted; the same command goes on from here", highlight=False)
        raise typer.Exit(130) from None
