"""`Report`: runs as figures and tables, on a page, in a notebook or in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Self

import altair as alt

from descant.errors import SettingError, unknown
from descant.experiment import Run
from descant.experiment.table import check_first
from descant.report.clients import fairness_figures, holdings_figure, models_figure
from descant.report.export import FORMATS, export
from descant.report.figure import Figure, Palette
from descant.report.gather import Experiment, find, gather, load_whole, pages_of_robustness
from descant.report.health import health_figures
from descant.report.look import styles
from descant.report.page import render
from descant.report.place import check_page, write_marked
from descant.report.training import training_figures
from descant.report.verdict import verdict


class Report:
    """Runs side by side: those on the same data and model together, the runs of a label as its seeds.

    In a notebook it shows its page. Rounds are chosen from `first` on. `titles` name the experiments in their
    order, `verdict` writes the sentence at the top of each, and `closing` are commands that the page ends with.
    `pages` are those of `descant robustness` on the same runs, where runs with other attackers stand together.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        title: str | None = None,
        first: int = 0,
        *,
        titles: Sequence[str] = (),
        verdict: Callable[[Experiment], str] = verdict,
        closing: Sequence[str] = (),
        pages: Sequence[Path] = (),
    ) -> None:
        self.experiments: list[Experiment] = gather(runs, first, pages)
        if titles:
            named = zip(self.experiments, titles, strict=True)
            self.experiments = [replace(experiment, title=name) for experiment, name in named]
        self.verdict, self.closing = verdict, tuple(closing)
        entries = [entry for experiment in self.experiments for entry in experiment.entries]
        check_first([(entry.label, run) for entry in entries for run in entry.runs], first)
        self.title = title or "descant: " + ", ".join(experiment.title for experiment in self.experiments)
        self.first = first
        self.palette = Palette(styles(list(dict.fromkeys(entry.label for entry in entries))))

    @classmethod
    def of(cls, *folders: str | Path, title: str | None = None, first: int = 0) -> Self:
        """A report on all finished runs in some folders. Others are named (`LeftOutWarning`) and left out."""
        found = find(folders)
        return cls(load_whole(found), title, first, pages=pages_of_robustness(found))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of how the runs were told apart."""
        return list(dict.fromkeys(note for experiment in self.experiments for note in experiment.notes))

    @cached_property
    def figures(self) -> dict[str, list[Figure]]:
        """The figures of every experiment, by its key."""
        return {
            e.key: [
                *training_figures(e, self.palette),
                *fairness_figures(e, self.palette),
                *models_figure(e, self.palette),
                *health_figures(e, self.palette),
                *holdings_figure(e.history.federation, ", in the first run"),
            ]
            for e in self.experiments
        }

    def plot(self, name: str | None = None) -> alt.ConcatChart:
        """One figure of the first experiment by name ("accuracy", "fairness", "bytes", ...), to show or to save."""
        found = {figure.key: figure for figure in next(iter(self.figures.values()))}
        if not found:
            raise SettingError("the run has not evaluated anything, so that there is nothing to plot")
        name = name if name is not None else next(iter(found))
        if name not in found:
            raise unknown("figure", name, found)
        return found[name].chart

    def html(self) -> str:
        """The page: one file that opens from disk and needs no network."""
        verdicts = {experiment.key: self.verdict(experiment) for experiment in self.experiments}
        return render(
            self.title, self.experiments, self.figures, self.palette.styles, self.first, verdicts, self.closing
        )

    def save(self, path: str | Path, format: str = "html") -> list[Path]:
        """Write the page to a file, or figures (png, svg) or tables (csv, md, latex) into a folder.

        A page replaces an older page of descant that nobody has written in, and no other file.
        """
        path = Path(path)
        if format not in FORMATS:
            raise unknown("format", format, FORMATS)
        if format != "html":
            return export(self, path, format)
        check_page(path)
        write_marked(path, self.html())
        return [path]

    def _repr_html_(self) -> str:
        page = escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 800px; border: 1px solid #ccc"></iframe>'
