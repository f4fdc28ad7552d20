"""Early stopping on the clients' validation data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite, isnan
from typing import Any

from descant.errors import SettingError, require
from descant.experiment.callback import Callback, Stop
from descant.task import METRICS

_USUAL = ("personal.valid_loss.mean", "shared.valid_loss.mean")


@dataclass(kw_only=True)
class EarlyStopping(Callback):
    """Stops a run when a figure has not become better by more than `least` in `patience` evaluations.

    `figure` is one of `run.summary()` without its round; by default it is the mean loss of the personal models (of
    the shared ones where nothing else is evaluated) on validation data. Whether more is better follows from its
    name for a loss, an error and the metrics of descant; of others `higher_is_better` says it. Evaluations before
    round `first` do not count. Report the round `chosen_on_valid` of such a run: in its last round the figure had
    not been better for a while.

    >>> EarlyStopping(patience=3).figure is None
    True
    """

    patience: int = 5
    figure: str | None = None
    least: float = 0.0
    higher_is_better: bool | None = None
    first: int = 0

    def __post_init__(self) -> None:
        patient = isinstance(self.patience, int) and self.patience >= 1
        require(self, "patience", patient, "a positive number of evaluations")
        require(self, "least", isfinite(self.least) and self.least >= 0, "a number, 0 or more")
        require(self, "first", self.first >= 0, "a round, 0 or more")

    def on_start(self, config: dict[str, Any]) -> None:
        self._best: float | None = None
        self._round, self._waited = 0, 0

    def on_evaluated(self, round: int, figures: dict[str, float]) -> Stop | None:
        if round < self.first:
            return None
        name = self._named(figures)
        now, sign = figures[name], 1.0 if self._higher(name) else -1.0
        if self._best is None and isnan(now):
            raise SettingError(f"EarlyStopping.figure = {name!r}: no client has examples in this part")
        if self._best is None or sign * (now - self._best) > self.least:
            self._best, self._round, self._waited = now, round, 0
            return None
        self._waited += 1
        if self._waited < self.patience:
            return None
        return Stop(f"{name} was no better than in round {self._round} in {self._waited} evaluations")

    def identity(self) -> dict[str, Any]:
        return {"name": "early-stopping"} | asdict(self)

    def _named(self, figures: dict[str, float]) -> str:
        usual = [name for name in _USUAL if name in figures]
        name = self.figure or (usual or _USUAL)[0]
        if name not in figures:
            known = ", ".join(sorted(known for known in figures if known.endswith(".mean")))
            raise SettingError(
                f"EarlyStopping.figure = {name!r}: it is not evaluated in this run. These are: {known}, and the "
                "other statistics of the same"
            )
        return name

    def _higher(self, name: str) -> bool:
        if self.higher_is_better is not None:
            return self.higher_is_better
        _, column, statistic = name.split(".")
        measure = column.partition("_")[2]
        if statistic in ("std", "variance") or measure.endswith(("loss", "error")):
            return False
        if measure in METRICS:  # of all of which more is better
            return True
        raise SettingError(
            f"EarlyStopping.higher_is_better: give True or False; the name {measure} does not say if more is better"
        )
