"""Runs as tables, charts and one self-contained HTML page. `descant.report(...)` makes one of what it is given.

Charts need Altair, which is loaded when one is drawn: a table or a verdict does without.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from descant.report.figure import Figure
    from descant.report.gather import Entry, Experiment
    from descant.report.report import Report

__all__ = ["Entry", "Experiment", "Figure", "Report"]

_PLACES = {"Entry": "gather", "Experiment": "gather", "Figure": "figure", "Report": "report"}


class _Called(ModuleType):
    """A module by the name of a function: whichever of the two is asked for first, `descant.report` is both."""

    def __call__(
        self,
        runs: Any,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        first: int = 0,
        format: str = "html",
    ) -> Any:
        """Charts and tables of one run or many (`descant.report.making.report` says more)."""
        from descant.report.making import report

        return report(runs, path, title=title, first=first, format=format)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'descant.report' has no attribute {name!r}")
    found = getattr(import_module(f"descant.report.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


sys.modules[__name__].__class__ = _Called
