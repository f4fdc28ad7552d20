"""`resume`: go on with a run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from descant.catalog import build
from descant.data import FederatedData
from descant.engine import Record
from descant.errors import ResumeError
from descant.experiment import Callback, Run
from descant.experiment.declaration import Settings, declared
from descant.experiment.journal import Journal
from descant.experiment.simulate import simulate
from descant.importing import importing
from descant.methods import Method
from descant.task import Task


def resume(
    folder: str | Path,
    task: Task | None = None,
    data: FederatedData | None = None,
    *,
    allow_imports: bool = False,
    progress: bool | Callable[[Record], None] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
) -> Run:
    """Go on with the unfinished run in a folder, from its last commit to its end.

    On the same machine the result is that of an unbroken run, to the bit. A run from a settings file is rebuilt
    from its settings; one that `simulate` began needs the same task and data again, and takes everything else from
    the folder, the model that training started from too. What was chosen or measured at the start (mode, chunk,
    threads, device) is kept.

    `progress` and `callbacks` are those of `simulate`. Callbacks are told again what was committed before.

    Import paths that the folder names (`mine:MyMethod`) are followed only if `allow_imports`: that runs code.
    """
    journal = Journal.reopen(Path(folder))
    config = journal.before
    with importing(allow_imports):
        if journal.settings is not None and (task is None or data is None):
            from descant.experiment.settings import RunSettings

            from_file = RunSettings.of(journal.settings)
            data = from_file.federated_data() if data is None else data
            task = from_file.task(data) if task is None else task
        method = build("methods", config["method"])
        given = recorded(config)
    if task is None or data is None:
        raise ResumeError(
            f"{folder} was begun by descant.simulate: hand in its task and its data again, "
            f"as in descant.resume({str(folder)!r}, task, data)"
        )
    return go_on(journal, task, data, method, given, progress=progress, callbacks=callbacks)


def recorded(config: dict[str, Any], **instead: Any) -> dict[str, Any]:
    """The settings that a run was begun with, or what is handed in instead of their record.

    What was chosen or measured when it began is under "execution".
    """
    known = config | config["execution"] | instead
    found = {name: known[name] for name in declared(Settings) if name in known}
    settings = Settings.of(found)
    return {name: getattr(settings, name) for name in found}


def go_on(
    journal: Journal, task: Task, data: FederatedData, method: Method, given: dict[str, Any], **call: Any
) -> Run:
    """Go on with a run as the journal says it was begun."""
    device = journal.before["execution"]["device"]
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ResumeError(f"{journal.folder} was begun on '{device}', and there is no such device here")
    return simulate(task, data, method, **given, out=journal, **call)
