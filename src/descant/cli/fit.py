"""Tables that fit the terminal: words break before numbers do, and what has no room is named, not cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from descant.cli.console import PIPE

_LEAST = 8  # characters that the names of rows can be broken to
_GAP = 3  # between columns: a blank on each side, and the line between them


@dataclass(frozen=True)
class Column:
    """A column of numbers; where there is no room for all, those of the highest `rank` are left out first."""

    head: str
    cells: Sequence[str]
    rank: int = 0

    @property
    def width(self) -> int:
        """A heading breaks at its blanks, a number nowhere."""
        return max(len(text) for text in (*self.head.split(), *self.cells, ""))


def print_fitted(
    console: Console, first: str, names: Sequence[str], columns: Sequence[Column], title: str = ""
) -> None:
    """Print a table with a row a name; say which columns the terminal has no room for."""
    kept = list(columns)
    least = min(_LEAST, max(len(name) for name in names))
    whole = max(map(len, (first, *names))) + sum(column.width + _GAP for column in kept) + _GAP
    width = max(PIPE, whole) if console.width == PIPE and not console.is_terminal else console.width
    while len(kept) > 1 and least + sum(column.width + _GAP for column in kept) > width - _GAP:
        worst = max(range(len(kept)), key=lambda i: (kept[i].rank, i))
        del kept[worst]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first, overflow="fold", min_width=least)
    for column in kept:
        table.add_column(column.head, justify="right", min_width=column.width, no_wrap=False)
    for i, name in enumerate(names):
        table.add_row(escape(name), *(column.cells[i].replace(" ", "\N{NO-BREAK SPACE}") for column in kept))
    console.print(table, width=width, crop=False)
    if len(kept) < len(columns):
        missing = ", ".join(column.head for column in columns if column not in kept)
        console.print(f"No room here for: {missing}. A wider terminal, a file or a pipe has them.", markup=False)
