"""descant: personalized federated learning, with every client its own model, tied to a shared reference."""

from descant import aggregators, codecs, coupling, data, methods, models
from descant.data import FederatedData
from descant.engine import Evaluation
from descant.resume import resume
from descant.runs import Run
from descant.simulate import simulate
from descant.task import Metric, Task
from descant.version import __version__

load = Run.load

__all__ = [
    "Evaluation",
    "FederatedData",
    "Metric",
    "Run",
    "Task",
    "__version__",
    "aggregators",
    "codecs",
    "coupling",
    "data",
    "load",
    "methods",
    "models",
    "resume",
    "simulate",
]
