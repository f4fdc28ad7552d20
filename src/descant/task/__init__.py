"""What clients learn: a module, a loss and a metric, for K clients at once."""

from descant.task.batch import Batch
from descant.task.layout import Layout
from descant.task.objectives import LOSSES, Metric
from descant.task.predict import Predict
from descant.task.task import Task
from descant.task.types import Objective

__all__ = ["LOSSES", "Batch", "Layout", "Metric", "Objective", "Predict", "Task"]
