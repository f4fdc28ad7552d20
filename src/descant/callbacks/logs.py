"""What the logs of other tools share: which figures they get, and when they are opened and closed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any

from descant.engine import RoundRecord
from descant.errors import SettingError, require
from descant.experiment.callback import Callback
from descant.metrics import STATISTICS

if TYPE_CHECKING:
    from descant.experiment import Run

_SPENT = ("received", "lost", "refused", "bytes_up", "bytes_down", "gradients", "seconds")


@dataclass(kw_only=True)
class Log(Callback):
    """Sends a run's figures to a tool: after every round what was spent, as in 'round.bytes_up', and after every
    evaluation the `statistics` of each model, part and measure, as in 'personal.test_accuracy.mean'. What is not
    finite is left out. A collapse counts as a run that has failed.
    """

    statistics: tuple[str, ...] = ("mean", "worst_10")

    def __post_init__(self) -> None:
        allowed = len(self.statistics) > 0 and set(self.statistics) <= set(STATISTICS)
        require(self, "statistics", allowed, f"some of {STATISTICS}")

    @abstractmethod
    def open(self, name: str, settings: dict[str, Any]) -> None:
        """A run begins: its name, and its settings by dotted name."""

    @abstractmethod
    def log(self, figures: dict[str, float], round: int) -> None:
        """Figures of a round."""

    @abstractmethod
    def close(self, failed: bool) -> None:
        """The run has ended."""

    def on_start(self, config: dict[str, Any]) -> None:
        self.open(f"{config['label']}, seed {config['seed']}", flat(config))

    def on_round(self, record: RoundRecord) -> None:
        told = {name: float(getattr(record, name)) for name in _SPENT} | record.figures
        self.log({f"round.{name}": value for name, value in told.items() if isfinite(value)}, record.round)

    def on_evaluated(self, round: int, figures: dict[str, float]) -> None:
        wanted = {n: v for n, v in figures.items() if n.rpartition(".")[2] in self.statistics and isfinite(v)}
        self.log(wanted, round)

    def on_end(self, run: Run) -> None:
        self.close(failed=run.collapse is not None)

    def on_error(self, error: BaseException) -> None:
        self.close(failed=True)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by dotted name, as in 'method.solver.lr'; lists and what is no plain value as text."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return found


def needed(module: str, extra: str) -> Any:
    """A module that is no part of descant's own; where it is missing, an error that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise SettingError(
            f"callbacks: {missing} is not installed, and this log needs it: pip install 'descant[{extra}]'"
        ) from error
