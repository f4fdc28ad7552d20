"""Figures for Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from descant.callbacks.logs import Log, needed

if TYPE_CHECKING:
    from descant.experiment import Run


@dataclass(kw_only=True)
class WandB(Log):
    """Sends a run's figures to Weights & Biases: a run of its own there, with the settings as its config and, at
    the end, `run.summary()` as its summary. Resuming begins another run there, which is told everything again.

    `options` are further arguments of `wandb.init`, as in `{"mode": "offline", "group": "mine"}`. Needs
    `pip install 'descant[wandb]'`.
    """

    project: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, name: str, settings: dict[str, Any]) -> None:
        given = {"project": self.project, "name": name, "config": settings} | dict(self.options)
        self._run = needed("wandb", "wandb").init(**given)

    def log(self, figures: dict[str, float], round: int) -> None:
        self._run.log(figures, step=round)

    def on_end(self, run: Run) -> None:
        self._run.summary.update({name: value for name, value in run.summary().items() if value is not None})
        super().on_end(run)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=1 if failed else 0)
