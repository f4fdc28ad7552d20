"""What a run leaves behind, and how to read it back."""

from descant.runs.history import Federation, History
from descant.runs.journal import finished, unfinished
from descant.runs.run import Run

__all__ = ["Federation", "History", "Run", "finished", "unfinished"]
