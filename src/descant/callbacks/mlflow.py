"""Figures for MLflow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from descant.callbacks.logs import Log, needed

_LONGEST = 500  # characters of a parameter's value that every store takes
_AT_ONCE = 100  # parameters that a request may hold


@dataclass(kw_only=True)
class MLflow(Log):
    """Sends a run's figures to MLflow: a run of its own there, inside the one that is active if there is one, with
    the settings as its parameters. Resuming begins another run there, which is told everything again.

    `experiment` and `uri` (a server, or a store such as 'sqlite:///mlflow.db') are MLflow's own where they are not
    given. Needs `pip install 'descant[mlflow]'`.
    """

    experiment: str | None = None
    uri: str | None = None

    def open(self, name: str, settings: dict[str, Any]) -> None:
        self._mlflow = needed("mlflow", "mlflow")
        if self.uri is not None:
            self._mlflow.set_tracking_uri(self.uri)
        if self.experiment is not None:
            self._mlflow.set_experiment(self.experiment)
        self._mlflow.start_run(run_name=name, nested=self._mlflow.active_run() is not None)
        told = [(_key(key), str(value)[:_LONGEST]) for key, value in settings.items()]
        for start in range(0, len(told), _AT_ONCE):
            self._mlflow.log_params(dict(told[start : start + _AT_ONCE]))

    def log(self, figures: dict[str, float], round: int) -> None:
        self._mlflow.log_metrics({_key(name): value for name, value in figures.items()}, step=round)

    def close(self, failed: bool) -> None:
        self._mlflow.end_run(status="FAILED" if failed else "FINISHED")


def _key(name: str) -> str:
    """A name of the characters that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "-", name)
