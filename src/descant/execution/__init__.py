"""How the steps of K clients run: one client after the other, vectorised, or compiled."""

from descant.execution.base import Execution, SingleExampleError, Vmap
from descant.execution.compiled import Compile, Graphed
from descant.execution.loop import Loop
from descant.execution.probe import MODES, Mode, choose

__all__ = ["MODES", "Compile", "Execution", "Graphed", "Loop", "Mode", "SingleExampleError", "Vmap", "choose"]
