"""`resume`: go on with a run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from descant.catalog import build
from descant.data import FederatedData
from descant.engine import Record
from descant.errors import ResumeError
from descant.experiment import Run
from descant.experiment.declaration import Settings, declared
from descant.experiment.journal import Journal
from descant.experiment.simulate import simulate
from descant.task import Task


def resume(
    folder: str | Path,
    task: Task | None = None,
    data: FederatedData | None = None,
    *,
    progress: Callable[[Record], None] | None = None,
) -> Run:
    """Go on with the unfinished run in a folder, from its last commit to its end.

    On the same machine the result is that of an unbroken run, to the bit. A run from a settings file is rebuilt
    from its settings; one that `simulate` began needs the same task and data again, and takes everything else from
    the folder. What was chosen or measured at the start (mode, chunk, threads, device) is kept.
    """
    journal = Journal.reopen(Path(folder))
    config = journal.before
    if journal.settings is not None and (task is None or data is None):
        from descant.experiment.settings import RunSettings

        settings = RunSettings.of(journal.settings)
        data = settings.federated_data() if data is None else data
        task = settings.task(data) if task is None else task
    if task is None or data is None:
        raise ResumeError(
            f"{folder} was begun by descant.simulate: hand in its task and its data again, "
            f"as in descant.resume({str(folder)!r}, task, data)"
        )
    execution = config["execution"]
    if execution["device"].startswith("cuda") and not torch.cuda.is_available():
        raise ResumeError(f"{folder} was begun on '{execution['device']}', and there is no such device here")
    # What was chosen or measured is under "execution", the rest as it was asked for.
    recorded = {name: (config | execution)[name] for name in declared(Settings) if name in config | execution}
    method = build("methods", config["method"])
    return simulate(task, data, method, **recorded, out=journal, progress=progress)
