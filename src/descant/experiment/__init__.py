"""What a run leaves behind, and how to read it back."""

from descant.experiment.callback import Callback, Stop
from descant.experiment.history import Federation, History, Stopped
from descant.experiment.journal import finished, unfinished
from descant.experiment.run import Run

__all__ = ["Callback", "Federation", "History", "Run", "Stop", "Stopped", "finished", "unfinished"]
