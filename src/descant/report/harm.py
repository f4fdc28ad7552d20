"""Who is harmed by taking part, and how clients are served who come later."""

from __future__ import annotations

from math import isfinite, nan

from descant.experiment.harm import worse_than_alone
from descant.experiment.table import LabelRow, share_text
from descant.report.gather import Experiment
from descant.report.tables import Table, TableCell, figure_cell


def harmed(experiment: Experiment, found: list[LabelRow]) -> Table | None:
    """The share of clients that are better off alone, or with the shared model; None where neither is known."""
    runs = {entry.label: entry.runs for entry in experiment.entries}
    alone = worse_than_alone(runs, experiment.rule, experiment.first)
    name = f"personal.worse_than_shared@{experiment.rule}"
    lines = []
    for row in found:
        shared = [run.summary(experiment.first).get(name, nan) for run in runs[row.label]]
        if row.label in alone or all(map(isfinite, shared)):
            lines.append((TableCell(row.label, row.label), _share(alone.get(row.label, [nan])), _share(shared)))
    if not lines:
        return None
    caption = (
        "Who is harmed: the share of clients whose own model is worse, on their test data, than what they reach "
        "alone (the method local, with the nearest number of gradients), and than the shared model of that round."
    )
    return Table(caption, ("method", "worse than alone", "worse than shared"), tuple(lines))


def newcomers(experiment: Experiment, found: list[LabelRow]) -> Table | None:
    """How clients are served that never took part in training; None where there are none."""
    metric, rule = experiment.history.metric, experiment.rule
    figures = {
        f"test {metric}": f"newcomers.personal.test_{metric}.mean@{rule}",
        "worst 10 %": f"newcomers.personal.test_{metric}.worst_10@{rule}",
        "those who took part": f"personal.test_{metric}.mean@{rule}",
    }
    there = [row for row in found if figures[f"test {metric}"] in row.mean]
    if not there:
        return None
    lines = [
        (TableCell(row.label, row.label), *(figure_cell(row, name) for name in figures.values())) for row in there
    ]
    number, rounds = there[0].mean["newcomers"], experiment.entries[0].config["newcomer_rounds"]
    caption = (
        f"Clients that come later: {number:.0f} who never took part, each after {rounds} "
        f"{'round' if rounds == 1 else 'rounds'} of work on its own training data, at the same rounds as above."
    )
    return Table(caption, ("method", *figures), tuple(lines))


def _share(shares: list[float]) -> TableCell:
    return (
        TableCell(share_text(shares), sum(shares) / len(shares)) if all(map(isfinite, shares)) else TableCell("–")
    )
