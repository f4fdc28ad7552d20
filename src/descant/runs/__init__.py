"""What a run leaves behind, and how to read it back."""

from descant.runs.history import Federation, History
from descant.runs.run import Run, finished

__all__ = ["Federation", "History", "Run", "finished"]
