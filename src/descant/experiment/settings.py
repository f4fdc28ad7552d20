"""Settings of a run as a file holds them, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from descant.catalog import build
from descant.data import FederatedData
from descant.draws import seed_of
from descant.engine import Record
from descant.errors import BusyError, MeanwhileError, SettingError
from descant.experiment.allowed import Name, OneOf
from descant.experiment.callback import Callback
from descant.experiment.datafiles import stamp
from descant.experiment.dataspec import DataSpec, load_data
from descant.experiment.declaration import Settings
from descant.experiment.declaring import setting
from descant.experiment.journal import Journal
from descant.experiment.parts import PartOf, SpecOf
from descant.experiment.reading import read_settings
from descant.experiment.run import Run
from descant.experiment.simulate import simulate
from descant.methods import Method
from descant.models.shapes import one_logit
from descant.task import LOSSES, METRICS, Task

__all__ = ["RunSettings", "read_settings"]

Buffers = Literal["shared", "local"]
_OWN = "descant.Task(model, loss=..., metric=...), then descant.simulate or descant.compare"


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """One run as a settings file holds it: the settings of `simulate`, and by name what is handed to it."""

    data: dict[str, Any] = setting(
        "who holds which examples. With `seed: run` they are drawn anew for every seed of the run; by default the "
        "data's own seed stays the same. Clients with fewer than `least` examples are refused; with `tiny: drop` "
        "they are left out, and with `tiny: pool` joined into one.",
        "result",
        DataSpec("datasets"),
    )
    model: dict[str, Any] = setting(
        "made to fit the data; its first parameters are drawn as the run's seed says.",
        "result",
        SpecOf("models", leading=1),
        "linear",
    )
    loss: str = setting("what the clients minimise.", "result", Name("loss", LOSSES, own=_OWN), "cross_entropy")
    metric: str | None = setting(
        "what the clients are judged by, beside the loss.",
        "result",
        Name("metric", METRICS, nothing="that of the loss (accuracy, or the squared error)", own=_OWN),
        None,
    )
    buffers: Buffers = setting(
        'running statistics (BatchNorm) are averaged along with a global model ("shared"), or stay with each '
        'client ("local").',
        "result",
        OneOf(get_args(Buffers)),
        "shared",
    )
    method: Method = setting("how the clients learn together.", "result", PartOf("methods"))

    @classmethod
    def unknown(cls, name: str, known: Iterable[str] | None = None) -> SettingError:
        if name in ("methods", "seeds"):
            return SettingError(
                f"'{name}' is a setting of a comparison: run the file with `descant compare`, or give a single run "
                f"'{name[:-1]}'"
            )
        if name in ("fractions", "assumed"):
            return SettingError(
                f"'{name}' is a setting of a table of robustness: run the file with `descant robustness`"
            )
        if name in ("budgets", "targets", "papers"):
            return SettingError(
                f"'{name}' is a setting of a table of bytes: run the file with `descant budget`, or leave it out "
                "and give it to `Comparison.budget`"
            )
        if name in ("out", "overwrite"):
            return SettingError(f"'{name}' is no setting of a file: say it on the command line, with --{name}")
        return super().unknown(name, known)

    @property
    def title(self) -> str:
        """The name of the run in tables and charts."""
        return self.label or self.method.name

    @property
    def data_spec(self) -> dict[str, Any]:
        """The spec of the data for this run's seed."""
        return self.data | ({"seed": self.seed} if self.data.get("seed") == "run" else {})

    def federated_data(self) -> FederatedData:
        return _load(dumps(self.data_spec, sort_keys=True), stamp(self.data_spec))

    def task(self, data: FederatedData) -> Task:
        """The task on some data; its model starts as the run's seed says."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(self.seed, "model"))
            seen = one_logit(data) if self.loss == "bce" else data
            model = build("models", self.model, seen, path="model")
        return Task(model, self.loss, self.metric, buffers=self.buffers)

    def execute(
        self,
        out: Path | None = None,
        *,
        overwrite: bool = False,
        progress: bool | Callable[[Record], None] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Run:
        """Run it, and leave it in the folder `out`."""
        there = out is None or out.exists()
        journal = Journal.claim(out, overwrite, self.plain()) if out is not None else None
        told: dict[str, Any] = {"progress": progress, "callbacks": tuple(callbacks)}
        try:
            data = self.federated_data()
            run_settings = {name: getattr(self, name) for name in Settings.__dataclass_fields__}
            run = simulate(self.task(data), data, self.method, **run_settings, out=journal, **told)
        except (BusyError, MeanwhileError):
            raise  # the folder is another process's, though it may be empty yet
        except Exception:
            if out is not None and not there:
                with suppress(OSError):  # the folder stays where something is in it
                    out.rmdir()
            raise
        run.config["settings"] = self.plain()
        return run


@lru_cache(maxsize=2)
def _load(spec: str, files: str | None) -> FederatedData:
    """The data that a spec names, from files as they are now; the cells of a grid share it."""
    return load_data(loads(spec))
