"""descant: personalized federated learning, with every client its own model, tied to a shared reference."""

from descant import aggregators, codecs, coupling, data, datasets, methods, models
from descant.data import FederatedData
from descant.engine import Evaluation
from descant.experiment import Run
from descant.experiment.resume import resume
from descant.experiment.simulate import simulate
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
    "datasets",
    "load",
    "methods",
    "models",
    "resume",
    "simulate",
]
