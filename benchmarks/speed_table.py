"""The figures of a run as a table, and as what goes to the file of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from speed_contest import Figures
from speed_shapes import LpProjRound, Shape

PLAIN, PFL = "plain PyTorch loop", "pfl"
_WIDTH = 116  # of the table, at least: a file or a pipe has none of its own


@dataclass(frozen=True)
class Outcome:
    """A case and what every contender took for it; `peak` is the matrix-product rate, where it was measured."""

    case: Shape | LpProjRound
    figures: Sequence[Figures]
    peak: float | None = None  # FLOP/s
    parameters: int = 0

    def rate(self, label: str) -> float | None:
        """Client-steps a second, from the median round."""
        for figures in self.figures:
            if figures.label == label and (found := figures.quartiles()):
                return self.case.client_steps / found[1]
        return None

    def ratio(self, label: str, peer: str) -> float | None:
        rate, other = self.rate(label), self.rate(peer)
        return rate / other if rate is not None and other is not None else None

    def of_peak(self, label: str) -> float | None:
        """The share of the peak, counting 2 FLOPs a parameter and example forward, and twice that backward."""
        rate = self.rate(label)
        if self.peak is None or rate is None or not isinstance(self.case, Shape):
            return None
        flops = 6 * self.parameters * self.case.examples / self.case.client_steps
        return rate * flops / self.peak


def as_json(outcome: Outcome) -> dict[str, Any]:
    contenders = {}
    for figures in outcome.figures:
        low, median, high = figures.quartiles() or (None, None, None)
        contenders[figures.label] = {
            "client_steps_per_second": outcome.rate(figures.label),
            "seconds_a_round": {"lower_quartile": low, "median": median, "upper_quartile": high},
            "rounds_timed": len(figures.seconds),
            "start_seconds": figures.start,
            "ratio_to_plain_loop": outcome.ratio(figures.label, PLAIN),
            "ratio_to_pfl": outcome.ratio(figures.label, PFL),
            "of_matmul_peak": outcome.of_peak(figures.label),
            "failed": figures.failed or None,
            "about": figures.about,
        }
    quoted = outcome.case.quoted_seconds if isinstance(outcome.case, LpProjRound) else None
    return {
        "title": outcome.case.title,
        "client_steps_a_round": outcome.case.client_steps,
        "matmul_flops_per_second": outcome.peak,
        "authors_seconds_a_round_quoted": quoted,
        "contenders": contenders,
    }


def show(outcomes: Sequence[Outcome], caption: str) -> None:
    table = Table(title="Local training, median round", caption=caption, caption_justify="left")
    table.add_column("")
    table.add_column("", no_wrap=True)  # the contender
    for name in ("client-steps/s", "s a round", "± %", f"x {PLAIN.split()[0]}", f"x {PFL}", "start s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for outcome in outcomes:
        for i, figures in enumerate(outcome.figures):
            table.add_row("" if i else outcome.case.key, *_row(outcome, figures))
        if isinstance(outcome.case, LpProjRound):
            seconds = f"{outcome.case.quoted_seconds:.3g}"
            table.add_row("", "the authors' code", "", seconds, "", "", "", "", "quoted, not measured here")
        table.add_section()
    console = Console()
    console = Console(width=max(console.width, _WIDTH))
    console.print(table)
    for outcome in outcomes:
        console.print(f"{outcome.case.key}  {outcome.case.title}", highlight=False)


def _row(outcome: Outcome, figures: Figures) -> list[str]:
    rate, found = outcome.rate(figures.label), figures.quartiles()
    if rate is None or found is None:
        return [figures.label, *["-"] * 6, figures.failed]
    spread = 50 * (found[2] - found[0]) / found[1]
    return [
        figures.label,
        f"{rate:,.0f}",
        f"{found[1]:.3g}",
        f"{spread:.0f}",
        *(_times(outcome.ratio(figures.label, peer)) for peer in (PLAIN, PFL)),
        f"{figures.start:.1f}" if figures.start is not None else "",
        "; ".join(_notes(outcome, figures)),
    ]


def _notes(outcome: Outcome, figures: Figures) -> list[str]:
    notes = []
    if figures.label == "descant auto":
        notes.append(f"chose {figures.about.get('mode', '?')}")
    if (share := outcome.of_peak(figures.label)) is not None:
        notes.append(f"{share:.0%} of matmul")
    return [*notes, *figures.about.get("fallbacks", []), *([figures.failed] if figures.failed else [])]


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g}"
