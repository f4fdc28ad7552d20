"""`descant export`: a run's models as files that need no descant."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from descant.cli.console import err, out


class Which(StrEnum):
    """The round whose models are wanted."""

    CHOSEN = "chosen"
    LAST = "last"


class Kind(StrEnum):
    """The models that can be exported."""

    PERSONAL = "personal"
    SHARED = "shared"
    SELECTED = "selected"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="where the models are left")],
    round: Annotated[
        Which, typer.Option(help="the round chosen on validation data, which the tables show, or the last")
    ] = Which.CHOSEN,
    models: Annotated[
        list[Kind] | None,
        typer.Option("--model", help="may be repeated; default: personal, and shared where there is one"),
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="this client alone; may be repeated; default: all"),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="as ONNX too; needs the extra 'onnx'")] = False,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="no programs: for a module that was made in Python")
    ] = False,
    allow_imports: Annotated[
        bool,
        typer.Option("--allow-imports", help="follow an import path that the run's folder names: that runs code"),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="replace the files of an earlier export, and remove what is left of it"),
    ] = False,
) -> None:
    """Write the models of a run for use without descant: safetensors, programs (.pt2), and an index.

    A program needs torch alone: model = torch.export.load("FILE.pt2").module()
    """
    from descant.errors import SettingError
    from descant.experiment import Run, finished, unfinished
    from descant.experiment.goingon import resume_command

    if not finished(run):
        if unfinished(run):
            raise SettingError(f"{run} is unfinished: go on with it first ({resume_command(run)})")
        below = sorted(path.parent for path in run.glob("*/run.json") if finished(path.parent))
        several = f"; give one of the runs in it, as {below[0]}" if below else ""
        raise SettingError(f"{run} holds no finished run: there is no run.json of descant's in it{several}")
    with err.status(f"Exporting {run}"):
        written = Run.load(run, allow_imports=allow_imports).export(
            folder,
            round=round.value,
            models=[kind.value for kind in models] if models else None,
            clients=clients,
            onnx=onnx,
            programs=not weights_only,
            overwrite=overwrite,
        )
    many = f"{len(written) - 1} files" if len(written) != 2 else "1 file"
    lists = "them" if len(written) != 2 else "it"
    out.print(f"{many}, and {written[-1]}, which lists {lists}", soft_wrap=True, highlight=False)
