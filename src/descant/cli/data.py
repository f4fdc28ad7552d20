"""`descant data`: get data sets, and see who holds what."""

from __future__ import annotations

from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from descant.cli.console import err, out
from descant.cli.plain import App

if TYPE_CHECKING:
    from descant.data import FederatedData

data = App(help="Get data sets, and see who holds what.")


class Shown(StrEnum):
    """How to show who holds what."""

    TEXT = "text"
    HTML = "html"
    PNG = "png"


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="a data set, as `descant list datasets` names it")],
    root: Annotated[
        Path | None, typer.Option(help="where data sets lie; default: $DESCANT_DATA, or ~/.cache/descant/data")
    ] = None,
) -> None:
    """Download a data set from its own address, go on with a broken download, and verify what is there."""
    from rich import progress

    from descant.cli.options import interruptible
    from descant.datasets.fetch import fetch as get

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with interruptible(), progress.Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        tasks: dict[str, progress.TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        files = get(name, root, show)
    for file in files:
        out.print(f"{file}", soft_wrap=True, markup=False)


def _shown_as(format: Shown | None, where: Path | None) -> Shown:
    """The format that was asked for, by its name or by that of the file; the two must agree."""
    from descant.errors import SettingError

    if where is None:
        return format or Shown.TEXT
    ending = {".html": Shown.HTML, ".htm": Shown.HTML, ".png": Shown.PNG}.get(where.suffix.lower())
    if ending is not None and format is Shown.TEXT:
        raise SettingError(
            f"--format text and --out = '{where}': text is printed, and a file is a chart; leave one out"
        )
    if ending is None or format not in (None, ending):
        asked = "html or png" if format in (None, Shown.TEXT) else format.value
        raise SettingError(f"--out = '{where}': a chart is a file that ends in .{asked.replace(' or ', ' or .')}")
    return ending


@data.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="settings; only its data is read")],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="override a setting of the file")
    ] = None,
    format: Annotated[
        Shown | None,
        typer.Option(help="a table here, or a chart in a file; default: as --out ends, else text"),
    ] = None,
    where: Annotated[
        Path | None, typer.Option("--out", "-o", help="the chart's file; default: holdings.html")
    ] = None,
) -> None:
    """Print or draw who holds what: labels by client, sizes.

    A chart replaces an older one of descant, and no other file.
    """
    from descant.experiment.settings import read_settings

    format = _shown_as(format, where)
    if format is not Shown.TEXT:
        from descant.report.place import check_picture

        check_picture(where := where or Path(f"holdings.{format.value}"))  # before the data are read
    shown = _load(read_settings(file, set))
    if format is Shown.TEXT:
        from descant.cli.holdings import holdings_table

        out.print(holdings_table(shown, out.width))
        return
    from descant.experiment import Federation
    from descant.report.clients import holdings_figure
    from descant.report.place import write_marked

    assert where is not None
    [figure] = holdings_figure(Federation.of(shown))
    if format is Shown.HTML:
        from descant.cli.holdings import holdings_said
        from descant.report.page import figures_page

        about = " ".join([f"{holdings_said(shown)}.", *(f"{note}." for note in shown.notes)])
        write_marked(where, figures_page(f"descant: {shown.name}", shown.name, about, [figure], "data"))
    else:
        figure.chart.save(picture := BytesIO(), format="png", scale_factor=2)
        write_marked(where, picture.getvalue())
    out.print(f"{where}", soft_wrap=True, markup=False)


def _load(values: dict[str, Any]) -> FederatedData:
    from descant.errors import SettingError
    from descant.experiment.dataspec import load_data
    from descant.experiment.declaration import declared
    from descant.experiment.settings import RunSettings

    if "data" not in values:
        raise SettingError("the setting 'data' is missing")
    known = declared(RunSettings)
    spec = known["data"].allowed.check("data", values["data"])
    if spec.get("seed") == "run":
        spec["seed"] = known["seed"].allowed.check("seed", values.get("seed", 0))
    return load_data(spec)
