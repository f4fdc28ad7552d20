"""`descant.report`: a report on whatever holds runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from descant.errors import SettingError
from descant.experiment import Run
from descant.report.gather import find, load_whole
from descant.report.report import Report


def report(
    runs: Run | str | Path | Iterable[Run | str | Path],
    path: str | Path | None = None,
    *,
    title: str | None = None,
    first: int = 0,
    format: str = "html",
) -> Report:
    """Charts and tables of one run or many, as one page, which a notebook shows.

    Args:
        runs: a run, a comparison, a folder of a run or with runs in it, or a list of these.
        path: where to write the page, or the folder of an export.
        title: the title of the page.
        first: rounds are chosen from this one on.
        format: what to write: the page ("html"), figures ("png", "svg") or tables ("csv", "md", "latex").
    """
    made = Report(_runs(runs), title, first)
    if path is not None:
        made.save(path, format)
    return made


def _runs(given: Run | str | Path | Iterable[Run | str | Path]) -> list[Run]:
    if isinstance(given, Run):
        return [given]
    if isinstance(given, str | Path):
        return load_whole(find([given]))
    if not isinstance(given, Iterable):
        raise SettingError(
            f"runs = {given!r}: it must be a run, a comparison, the path of a folder with runs, or a list of these"
        )
    return [run for one in given for run in _runs(one)]
