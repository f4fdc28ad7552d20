"""What several commands take, and what they say when they are interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from descant.cli.console import err
from descant.errors import BusyError, SettingError

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="settings")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="override a setting of the file")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress")]
Json = Annotated[bool, typer.Option("--json", help="progress and results as JSON lines, for programs")]
GridFolder = Annotated[Path | None, typer.Option("--out", "-o", help="the grid's folder; default: runs/FILE")]
First = Annotated[int, typer.Option(help="choose rounds from this one on")]


def check_first(first: int, rounds: Iterable[int]) -> None:
    """Refuse a first round that some of the runs to come, of so many `rounds`, would not have."""
    last = min(rounds)
    if not 0 <= first <= last:
        raise SettingError(f"--first {first}: it must be from 0 to {last}, the last round of a run")


class Rule(StrEnum):
    """The rounds that figures are of."""

    CHOSEN = "chosen"
    LAST = "last"
    BEST = "best-on-test"


RULES: dict[Rule, Literal["last", "best_on_test"] | None] = {
    Rule.CHOSEN: None,
    Rule.LAST: "last",
    Rule.BEST: "best_on_test",
}
WhichRound = Annotated[
    Rule, typer.Option(help="the round chosen on validation data, the last, or the papers' best on test")
]


@contextmanager
def interruptible() -> Iterator[None]:
    """Say how to go on, when the user interrupts a comparison, or other processes are still at work on it."""
    try:
        yield
    except BusyError as error:
        err.print(f"descant: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3) from None
    except KeyboardInterrupt:
        err.print("descant: interrupted; the same command goes on from here", highlight=False)
        raise typer.Exit(130) from None
