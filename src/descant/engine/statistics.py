"""Running statistics (BatchNorm) beside a method's own numbers: who may have them, and whether they travel."""

from __future__ import annotations

from descant.errors import NotTogetherError
from descant.execution import Execution
from descant.methods import Method
from descant.task import Task

STATISTICS = "statistics"  # the leaf that carries them beside a method's own leaves


def refuse_statistics(task: Task, method: Method) -> None:
    """Refuse a model with running statistics where the method says that it cannot train one."""
    if task.buffer_layout.names and (why := method.refuses.get("statistics")) is not None:
        raise NotTogetherError(
            "model",
            f"it keeps running statistics (BatchNorm), and the method '{method.name}' cannot train it: {why}. Use "
            "nn.GroupNorm, say",
        )


def shares_statistics(method: Method, execution: Execution) -> bool:
    """Whether running statistics travel with the shared model."""
    return method.has_shared and execution.task.buffers == "shared" and bool(execution.task.buffer_layout.names)
