"""The commands of `descant`, and what they do with errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from descant.cli.budget import budget
from descant.cli.console import err, out
from descant.cli.data import data
from descant.cli.export import export
from descant.cli.options import (
    File,
    First,
    GridFolder,
    Json,
    Quiet,
    Set,
    carried_out,
    end_whole,
    grid_folder,
    seeds_of,
)
from descant.cli.plain import App
from descant.cli.robustness import robustness
from descant.cli.theory import theory
from descant.version import __version__

if TYPE_CHECKING:
    from descant.experiment import Run

# What a command needs is imported when it runs: torch takes seconds, and `--help` must not wait for it.
app = App(
    name="descant",
    help="Personalized federated learning: every client its own model, tied to a shared reference.",
    pretty_exceptions_enable=False,
)


app.add_typer(data, name="data")


class Kind(StrEnum):
    """What can be listed. A kind that has no entry yet is an empty list, so that programs can ask."""

    METHODS = "methods"
    ATTACKS = "attacks"
    AGGREGATORS = "aggregators"
    CODECS = "codecs"
    PROJECTIONS = "projections"
    PENALTIES = "penalties"
    OPTIMIZERS = "optimizers"
    SCHEDULES = "schedules"
    DATASETS = "datasets"
    PARTITIONS = "partitions"
    MODELS = "models"
    METRICS = "metrics"


class ReportFormat(StrEnum):
    """What a report can be written as."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    CSV = "csv"
    MD = "md"
    LATEX = "latex"


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on, when the user interrupts a run."""
    try:
        yield
    except KeyboardInterrupt:
        from descant.experiment import unfinished
        from descant.experiment.goingon import resume_command

        if not unfinished(folder):
            raise
        said = f"descant: interrupted; go on with: {resume_command(folder)}"
        err.print(said, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _say_run(run: Run, folder: Path) -> None:
    from descant.cli.tables import print_run

    print_run(run, out)
    out.print(f"The run is in {folder}; for charts: descant report {folder}", soft_wrap=True)


@app.callback()
def descant(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="the version")
    ] = False,
) -> None:
    """Personalized federated learning: every client its own model, tied to a shared reference."""


@app.command()
def run(
    file: File,
    set: Set = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="the run's folder; default: runs/FILE")] = None,
    overwrite: Annotated[bool, typer.Option(help="replace the run that lies there")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run one method, as FILE.yaml says."""
    from descant.cli.progress import Progress
    from descant.experiment.settings import RunSettings, read_settings

    settings = RunSettings.of(read_settings(file, set))
    folder = folder or Path("runs") / file.stem
    with _resumable(folder), Progress(quiet, as_json) as progress:
        bar = progress.cell(settings.title, settings.seed, settings.rounds)
        finished = settings.execute(folder, overwrite=overwrite, progress=bar)
        progress.finished(finished)
    if not as_json:
        _say_run(finished, folder)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the folder of an interrupted run")],
    allow_imports: Annotated[
        bool, typer.Option("--allow-imports", help="follow import paths that the folder names: that runs code")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run; its result is that of an unbroken one."""
    from descant.cli.progress import Progress
    from descant.experiment.journal import Journal
    from descant.experiment.resume import resume as go_on

    config = Journal.reopen(folder).before
    with _resumable(folder), Progress(quiet, as_json) as progress:
        bar = progress.cell(config["label"], config["seed"], config["rounds"])
        finished = go_on(folder, allow_imports=allow_imports, progress=bar)
        progress.finished(finished)
    if not as_json:
        _say_run(finished, folder)


@app.command()
def compare(
    file: File,
    set: Set = None,
    folder: GridFolder = None,
    first: First = 0,
    figures: Annotated[
        list[str] | None,
        typer.Option("--figure", metavar="NAME", help="print this figure too, a column a seed; may be repeated"),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run several methods and seeds on the same data, as FILE.yaml says, and print them side by side.

    Before anything runs, every method is checked against the settings, the model and the data. Cells that are
    finished already are read, not run again; one that was interrupted is gone on with. The same command may run
    several times at once: each takes the next cell that no other is at work on. One that is done while others are
    still at work names their cells, and ends with status 3. A cell whose files are damaged is named and left out,
    the others are printed, and the status is 2.
    """
    from descant.cli.events import emit
    from descant.cli.tables import comparison_notes, comparison_table, print_figure
    from descant.experiment.grid import comparison
    from descant.experiment.promised import refuse_unknown_figures
    from descant.experiment.settings import read_settings

    grid = comparison(read_settings(file, set), grid_folder(folder, file))
    refuse_unknown_figures(grid, figures or ())  # before anything runs
    results = carried_out(grid, first, quiet, as_json)
    if as_json:
        for note in comparison_notes(results, first):
            emit({"event": "note"} | note)
    else:
        comparison_table(results, out, first=first, asked=seeds_of(grid))
        for name in figures or ():
            print_figure(results, name, out, first)
        out.print(f"The runs are in {grid.folder}; for charts: descant report {grid.folder}", soft_wrap=True)
    end_whole(grid, results)


app.command()(robustness)
app.command()(budget)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders of runs, or with runs in them")],
    where: Annotated[
        Path | None, typer.Option("--out", "-o", help="the page, or the folder of an export; default: report.html")
    ] = None,
    format: Annotated[
        ReportFormat, typer.Option(help="page, figures (png, svg), tables (csv, md, latex)")
    ] = ReportFormat.HTML,
    title: Annotated[str | None, typer.Option(help="the title of the page")] = None,
    first: First = 0,
) -> None:
    """Charts and tables of one run or many, as one page that opens without a network, or as files.

    The page's name ends in .html. It replaces an older page of descant that nobody has written in, and no
    other file.
    """
    from descant.report import Report
    from descant.report.place import check_page

    where = where or Path("report.html" if format is ReportFormat.HTML else f"report-{format.value}")
    if format is ReportFormat.HTML:
        check_page(where)  # before the runs are read
    with err.status(f"Reading {', '.join(map(str, folders))}"):
        page = Report.of(*folders, title=title, first=first)
        written = page.save(where, format.value)
    for note in page.notes:
        err.print(f"descant: {note}", markup=False, highlight=False, soft_wrap=True)
    for path in written:
        out.print(f"{path}", soft_wrap=True)


app.command()(export)


@app.command()
def verify(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders of runs, or with runs in them")],
) -> None:
    """Read every file of some runs, and name those that are not what was written."""
    from descant.experiment import unfinished
    from descant.experiment.goingon import resume_command
    from descant.experiment.verify import runs_in
    from descant.experiment.verify import verify as wrong_in

    runs = runs_in(folders)
    wrong = {run: wrong_in(run) for run in runs}
    for message in (message for messages in wrong.values() for message in messages):
        err.print(f"descant: {message}", markup=False, highlight=False, soft_wrap=True)
    for run in runs:
        if unfinished(run) and not wrong[run]:
            out.print(f"{run} is whole, but unfinished; go on with: {resume_command(run)}", soft_wrap=True)
    if any(wrong.values()):
        raise typer.Exit(2)
    out.print(f"{len(runs)} run{'s are' if len(runs) > 1 else ' is'} whole", highlight=False)


@app.command("list")
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="what to list; nothing lists what can be listed")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """List what can be named in settings: methods, aggregators, data sets, models and so on."""
    from descant.cli.tables import entries_table, kinds_table, presets_table
    from descant.kinds import CATALOG, SETS
    from descant.listing import entries, presets

    if kind is None:
        names = {each.value: [*CATALOG.get(each.value, ()), *SETS.get(each.value, ())] for each in Kind}
        if as_json:
            print(json.dumps(names, indent=2))
        else:
            out.print(kinds_table(names))
        return
    found: list[dict[str, Any]] = entries(kind.value) if kind.value in CATALOG else []
    sets = presets(kind.value)
    if as_json:
        print(json.dumps(found + sets, indent=2))
        return
    out.print(entries_table(kind.value, found))
    if sets:
        out.print(presets_table(kind.value, sets))


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", "-o", help="where the runs are left")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Turn one dial on handwritten digits: train alone, personalize or share one model? Writes a report."""
    from descant.cli.demo import run_demo
    from descant.cli.options import interruptible

    with interruptible():
        run_demo(folder, out, quiet)


app.command()(theory)
