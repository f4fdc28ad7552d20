"""Runs as tables, charts and one self-contained HTML page. `descant.report(...)` makes one of what it is given."""

import sys
from types import ModuleType

from descant.report.figure import Figure
from descant.report.gather import Entry, Experiment
from descant.report.making import report as _report
from descant.report.report import Report

__all__ = ["Entry", "Experiment", "Figure", "Report"]


class _Called(ModuleType):
    """A module by the name of a function: whichever of the two is asked for first, `descant.report` is both."""

    __call__ = staticmethod(_report)


sys.modules[__name__].__class__ = _Called
