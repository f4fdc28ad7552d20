"""`descant.report`: a report on whatever holds runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from descant.errors import SettingError
from descant.experiment import Run
from descant.report.gather import find, load_whole, pages_of_robustness
from descant.report.place import check_page
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
        path: where to write the page, or the folder of an export. A page replaces an older page of descant, and no
            other file.
        title: the title of the page.
        first: rounds are chosen from this one on.
        format: what to write: the page ("html"), figures ("png", "svg") or tables ("csv", "md", "latex").
    """
    if path is not None and format == "html":
        check_page(Path(path))  # before the runs are read
    if isinstance(runs, Iterable) and not isinstance(runs, str):
        runs = list(runs)  # looked at twice
    pages = pages_of_robustness(folder for given in _folders(runs) for folder in find([given]))
    made = Report(_runs(runs), title, first, pages=pages)
    if path is not None:
        made.save(path, format)
    return made


def _folders(given: Any) -> Iterator[str | Path]:
    """The folders among what was given."""
    if isinstance(given, str | Path):
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, Run):
        for one in given:
            yield from _folders(one)


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
