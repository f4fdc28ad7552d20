"""What clients learn: a module, a loss and a metric, for K clients at once."""

from descant.task.batch import Batch
from descant.task.layout import Layout
from descant.task.measures import METRICS, accuracy, auc, balanced_accuracy, binary_f1, f1
from descant.task.metric import Metric
from descant.task.objectives import LOSSES
from descant.task.predict import Predict
from descant.task.task import Task
from descant.task.types import Objective

__all__ = [
    "LOSSES",
    "METRICS",
    "Batch",
    "Layout",
    "Metric",
    "Objective",
    "Predict",
    "Task",
    "accuracy",
    "auc",
    "balanced_accuracy",
    "binary_f1",
    "f1",
]
