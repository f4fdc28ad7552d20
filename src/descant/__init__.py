"""descant: personalized federated learning, with every client its own model, tied to a shared reference."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from descant.version import __version__

if TYPE_CHECKING:
    from descant import aggregators, attacks, callbacks, codecs, coupling, data, datasets, methods, models
    from descant.comparison import Comparison, compare
    from descant.data import FederatedData
    from descant.engine import Evaluation
    from descant.experiment import Run
    from descant.experiment.resume import resume
    from descant.experiment.simulate import simulate
    from descant.report.making import report
    from descant.robust import Robustness, robustness
    from descant.task import Metric, Task

    load = Run.load

# Where a name lies. It is imported when it is first used, so that `descant --help` need not wait for torch.
_PACKAGES = (
    *("aggregators", "attacks", "callbacks", "codecs", "coupling", "data", "datasets", "methods", "models"),
    "report",  # which is called as a function, too
)
_PLACES = {
    "Comparison": "comparison",
    "Evaluation": "engine",
    "FederatedData": "data",
    "Metric": "task",
    "Robustness": "robust",
    "Run": "experiment",
    "Task": "task",
    "compare": "comparison",
    "resume": "experiment.resume",
    "robustness": "robust",
    "simulate": "experiment.simulate",
}

__all__ = [
    "Comparison",
    "Evaluation",
    "FederatedData",
    "Metric",
    "Robustness",
    "Run",
    "Task",
    "__version__",
    "aggregators",
    "attacks",
    "callbacks",
    "codecs",
    "compare",
    "coupling",
    "data",
    "datasets",
    "load",
    "methods",
    "models",
    "report",
    "resume",
    "robustness",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"descant.{name}")
    if name in _PLACES:
        found = getattr(import_module(f"descant.{_PLACES[name]}"), name)
    elif name == "load":
        found = __getattr__("Run").load
    else:
        raise AttributeError(f"module 'descant' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
