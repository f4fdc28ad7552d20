"""What clients learn: a module, a loss and a metric, for K clients at once."""

from descant.task.batch import Batch
from descant.task.compiled import Compile
from descant.task.execution import Execution, SingleExampleError, Vmap
from descant.task.layout import Layout
from descant.task.loop import Loop
from descant.task.objectives import LOSSES, Metric
from descant.task.predict import Predict
from descant.task.probe import MODES, Mode, choose
from descant.task.task import Task
from descant.task.types import Objective

__all__ = [
    "LOSSES",
    "MODES",
    "Batch",
    "Compile",
    "Execution",
    "Layout",
    "Loop",
    "Metric",
    "Mode",
    "Objective",
    "Predict",
    "SingleExampleError",
    "Task",
    "Vmap",
    "choose",
]
