"""`descant data`: get data sets, and see who holds what."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from descant.cli.console import err, out
from descant.errors import SettingError

if TYPE_CHECKING:
    from descant.data import FederatedData

data = typer.Typer(help="Get data sets, and see who holds what.", no_args_is_help=True, rich_markup_mode=None)
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH, _MOST = 24, 40  # of the largest client's bar, and clients that are printed


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

    from descant.datasets.fetch import fetch as get

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        tasks: dict[str, progress.TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        files = get(name, root, show)
    for file in files:
        out.print(f"{file}", soft_wrap=True, markup=False)


@data.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="settings; only its data is read")],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="override a setting of the file")
    ] = None,
    format: Annotated[Shown, typer.Option(help="a table here, or a chart in a file")] = Shown.TEXT,
    where: Annotated[
        Path | None, typer.Option("--out", "-o", help="the chart's file; default: holdings.html")
    ] = None,
) -> None:
    """Print or draw who holds what: labels by client, sizes."""
    from descant.experiment.settings import read_settings

    shown = _load(read_settings(file, set))
    if format is Shown.TEXT:
        out.print(holdings_table(shown))
        return
    from descant.experiment import Federation
    from descant.report.clients import holdings_figure

    where = where or Path(f"holdings.{format.value}")
    [figure] = holdings_figure(Federation.of(shown))
    if format is Shown.HTML:
        figure.chart.save(str(where), format="html", inline=True)  # it opens without a network
    else:
        figure.chart.save(str(where), format="png", scale_factor=2)
    out.print(f"{where}", soft_wrap=True, markup=False)


def _load(values: dict[str, Any]) -> FederatedData:
    from descant.catalog import build

    if "data" not in values:
        raise SettingError("the setting 'data' is missing")
    spec = {"name": values["data"]} if isinstance(values["data"], str) else values["data"]
    if not isinstance(spec, dict):
        raise SettingError(f"data = {spec!r}: it must be a name, or a mapping with a name")
    spec = dict(spec)
    if spec.get("seed") == "run":
        spec["seed"] = values.get("seed", 0)
    loaded: FederatedData = build("datasets", spec)
    return loaded


def holdings_table(shown: FederatedData) -> Table:
    """A row a client: how much it holds of each part, and of each label."""
    sizes = {part: shown.part(part).sizes for part in ("train", "valid", "test")}
    whole = torch.stack(list(sizes.values())).sum(0)  # [N]
    labelled = shown.classes is not None
    counts = shown.counts() if labelled else torch.zeros(len(shown), 1)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)  # [N, classes]
    full = float(shares.max())
    table = Table(title=f"{shown.name}: who holds what", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("client", no_wrap=True)
    for part in sizes:
        table.add_column(part, justify="right")
    table.add_column("examples", no_wrap=True)
    if labelled:
        table.add_column(f"training labels 0 to {counts.shape[1] - 1} (highest: {full:.0%})", no_wrap=True)
    largest = int(whole.max())
    for k in _some(len(shown)):
        row = [escape(shown.clients[k]), *(f"{int(part[k]):,}" for part in sizes.values())]
        row.append("█" * max(1, round(_WIDTH * int(whole[k]) / largest)))
        if labelled:
            row.append(spark(shares[k].tolist(), full))
        table.add_row(*row)
    table.caption, table.caption_justify = _caption(shown, whole), "left"
    return table


def spark(shares: list[float], full: float) -> str:
    """Shares as bars, one character each, the highest where a share is `full`; what is there at all is seen."""
    return "".join(
        _BARS[0] if not share else _BARS[max(1, round(share / full * (len(_BARS) - 1)))] for share in shares
    )


def _some(clients: int) -> list[int]:
    if clients <= _MOST:
        return list(range(clients))
    return [k * (clients - 1) // (_MOST - 1) for k in range(_MOST)]


def _caption(shown: FederatedData, whole: torch.Tensor) -> str:
    low, high = int(whole.min()), int(whole.max())
    said = f"{len(shown)} clients, {int(whole.sum()):,} examples, {low:,} to {high:,} a client"
    if shown.classes is not None:
        held = (shown.counts() > 0).sum(1).float()
        said += f", {float(held.mean()):.1f} of {shown.classes} labels a client on average"
    return said + (f"; {_MOST} clients are shown" if len(shown) > _MOST else "")
