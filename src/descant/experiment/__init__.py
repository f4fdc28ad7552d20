"""What a run leaves behind, and how to read it back."""

from descant.experiment.history import Federation, History
from descant.experiment.journal import finished, unfinished
from descant.experiment.run import Run

__all__ = ["Federation", "History", "Run", "finished", "unfinished"]
