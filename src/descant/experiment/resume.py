"""`resume`: go on with a run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from descant.catalog import build
from descant.data import FederatedData
from descant.engine import Record
from descant.errors import ResumeError, shown
from descant.experiment import Run
from descant.experiment.declaration import Settings, declared
from descant.experiment.journal import Journal
from descant.experiment.simulate import simulate
from descant.importing import importing
from descant.task import Task


def resume(
    folder: str | Path,
    task: Task | nn.Module | None = None,
    data: FederatedData | None = None,
    *,
    allow_imports: bool = False,
    progress: Callable[[Record], None] | None = None,
) -> Run:
    """Go on with the unfinished run in a folder, from its last commit to its end.

    On the same machine the result is that of an unbroken run, to the bit. A run from a settings file is rebuilt
    from its settings; one that `simulate` began needs the same task and data again, and takes everything else from
    the folder, the model that training started from too. What was chosen or measured at the start (mode, chunk,
    threads, device) is kept.

    Import paths that the folder names (`mine:MyMethod`) are followed only if `allow_imports`: that runs code.
    """
    if not isinstance(folder, str | Path):
        raise ResumeError(f"folder = {shown(folder)}: it must be the path of a run's folder")
    journal = Journal.reopen(Path(folder))
    config = journal.before
    with importing(allow_imports):
        if journal.settings is not None and (task is None or data is None):
            from descant.experiment.settings import RunSettings

            from_file = RunSettings.of(journal.settings)
            data = from_file.federated_data() if data is None else data
            task = from_file.task(data) if task is None else task
        method = build("methods", config["method"])
        # What was chosen or measured is under "execution", the rest as it was asked for.
        known = config | config["execution"]
        recorded = {name: known[name] for name in declared(Settings) if name in known}
        settings = Settings.of(recorded)
    if task is None or data is None:
        raise ResumeError(
            f"{folder} was begun by descant.simulate: hand in its task and its data again, "
            f"as in descant.resume({str(folder)!r}, task, data)"
        )
    execution = config["execution"]
    if execution["device"].startswith("cuda") and not torch.cuda.is_available():
        raise ResumeError(f"{folder} was begun on '{execution['device']}', and there is no such device here")
    given = {name: getattr(settings, name) for name in recorded}
    return simulate(task, data, method, **given, out=journal, progress=progress)
