"""Runs as tables, charts and one self-contained HTML page."""

from descant.report.figure import Figure
from descant.report.gather import Entry, Experiment
from descant.report.report import Report

__all__ = ["Entry", "Experiment", "Figure", "Report"]
