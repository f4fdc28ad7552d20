"""`descant theory`: the papers' closed forms beside simulations, and their figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich import progress as rich_progress
from rich.table import Table

from descant.cli.console import err, out

if TYPE_CHECKING:
    from descant.theory.checks import Agreement, Claim
    from descant.theory.figures import Chart

_KINDS = {
    "result": "Results that the papers state",
    "formula": "Formulas and remarks as they are printed, where a slip leaves the results as they are",
    "question": "Questions that are asked here, and not answered by the papers",
}


class FigureFormat(StrEnum):
    """How figures are written: all in one page, or each as a picture."""

    HTML = "html"
    SVG = "svg"
    PNG = "png"


def theory(
    trials: Annotated[int, typer.Option(min=100, help="trials of each simulation")] = 2000,
    seed: Annotated[int, typer.Option(help="all draws follow from it")] = 0,
    folder: Annotated[Path, typer.Option("--out", "-o", help="where the figures are left")] = Path("runs/theory"),
    formats: Annotated[
        list[FigureFormat] | None, typer.Option("--format", help="of the figures; may be repeated; default: html")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> None:
    """Compare the papers' closed forms with simulations, and say which of their statements hold.

    Ends with status 1 where a closed form and its simulation disagree. Figures replace older ones of descant, and
    no other files.
    """
    from descant.theory.checks import CHECKS, Agreement
    from descant.theory.figures import FIGURES

    written = _places(FIGURES, folder, formats or [FigureFormat.HTML])  # before anything is simulated
    rows: list[Agreement] = []
    claims: list[Claim] = []
    charts: dict[str, Chart] = {}
    with _steps(len(CHECKS) + len(FIGURES), quiet) as step:
        for name, check in CHECKS.items():
            step(name)
            for finding in check(trials, seed):
                if isinstance(finding, Agreement):
                    rows.append(finding)
                else:
                    claims.append(finding)
        for name, figure in FIGURES.items():
            step(name)
            charts[name] = figure(trials, seed)
        step("writing")
        _write(charts, written, trials, seed)
    if as_json:
        print(json.dumps(_plain(rows, claims, written, trials, seed), indent=2, allow_nan=False))
    else:
        out.print(_rows_table(rows, trials))
        out.print(_claims_table(claims))
        out.print(_summary(rows, claims))
        out.print(f"The figures are in {', '.join(str(path) for path in written)}", soft_wrap=True)
    if not all(row.agrees for row in rows):
        raise typer.Exit(1)


@contextmanager
def _steps(total: int, quiet: bool) -> Iterator[Any]:
    """A bar that names the step at work; nothing where there is no terminal."""
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
    )
    with rich_progress.Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)
        started = False

        def step(name: str) -> None:
            nonlocal started
            bar.update(task, description=name, advance=int(started))
            started = True

        yield step


def _places(names: Iterable[str], folder: Path, formats: Sequence[FigureFormat]) -> list[Path]:
    """The files to be written; one that somebody else wrote is refused."""
    from descant.files import claim_folder
    from descant.report.place import check_picture

    places: list[Path] = []
    for kind in dict.fromkeys(formats):
        stems = ("theory",) if kind is FigureFormat.HTML else names
        places += [folder / f"{stem}.{kind.value}" for stem in stems]
    claim_folder(folder)
    for place in places:
        check_picture(place)
    return places


def _write(charts: dict[str, Chart], places: Sequence[Path], trials: int, seed: int) -> None:
    from descant.report.place import write_marked
    from descant.report.theory import theory_page

    for place in places:
        if place.suffix == ".html":
            write_marked(place, theory_page(charts, trials, seed))
        else:
            vector = place.suffix == ".svg"
            drawn = StringIO() if vector else BytesIO()
            charts[place.stem].save(drawn, format="svg" if vector else "png")
            write_marked(place, drawn.getvalue())


def _plain(
    rows: Sequence[Agreement], claims: Sequence[Claim], written: Sequence[Path], trials: int, seed: int
) -> dict[str, Any]:
    return {
        "trials": trials,
        "seed": seed,
        "closed_forms": [asdict(row) | {"off": row.off, "agrees": row.agrees} for row in rows],
        "statements": [asdict(claim) for claim in claims],
        "figures": [str(path) for path in written],
    }


def _rows_table(rows: Sequence[Agreement], trials: int) -> Table:
    table = Table(
        title=f"Closed forms and simulations ({trials:,} trials)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("paper", "where", "what"):
        table.add_column(heading)
    for heading in ("closed form", "simulated", "± s.e.", "off by"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        error, off = ("exact", "") if row.off is None else (f"{row.se:.2g}", f"{row.off:+.1f} s.e.")
        verdict = "agree" if row.agrees else "DISAGREE"
        numbers = (f"{row.theory:.5g}", f"{row.found:.5g}", error, off)
        table.add_row(row.paper, row.where, row.what, *numbers, verdict)
    return table


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = Table(
        title="Statements, and whether they hold", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in ("paper", "where", "kind", "statement", "holds", "numbers"):
        table.add_column(heading)
    for claim in claims:
        holds = "yes" if claim.holds else "NO"
        table.add_row(claim.paper, claim.where, claim.kind, claim.statement, holds, claim.numbers)
    return table


def _summary(rows: Sequence[Agreement], claims: Sequence[Claim]) -> str:
    agree = sum(row.agrees for row in rows)
    said = [f"{agree} of {len(rows)} closed forms agree with what was simulated or computed otherwise."]
    for kind, name in _KINDS.items():
        of_kind = [claim for claim in claims if claim.kind == kind]
        fail = [claim for claim in of_kind if not claim.holds]
        places = list(dict.fromkeys(f"{c.paper} {c.where}" for c in fail if not c.repeats))
        again = sum(c.repeats is not None for c in fail)
        twice = f", {again} of them what another says already" if again else ""
        listed = f": {'; '.join(places)}" if places else ""
        said.append(f"{name}: {len(fail)} of {len(of_kind)} do not hold{twice}{listed}.")
    return "\n".join(said)
