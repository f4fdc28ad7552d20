"""The tables of a report: figures with their spread, the worst served, what differs, and what is not equal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import yaml

from descant.experiment.history import SUCCESS
from descant.experiment.namesakes import differing, flat
from descant.experiment.table import (
    LabelRow,
    alike,
    at_evaluation,
    beside,
    compute_note,
    count,
    grouped,
    human_bytes,
    of_fewer,
    over_seeds,
    rows,
    short,
    whose,
    with_spread,
)
from descant.experiment.unlike import unlike
from descant.files import plain
from descant.report.gather import Entry, Experiment
from descant.report.series import per_client

RULES = {"chosen_on_valid": "round chosen on validation data", "last": "last round", "best_on_test": "best on test"}
_WORST = 5  # clients named an entry


@dataclass(frozen=True)
class TableCell:
    """What a cell shows, and the number that it is sorted by."""

    text: str
    value: float | str | None = None


@dataclass(frozen=True)
class Table:
    """A caption, headings and rows; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def summary_rows(experiment: Experiment, first: int = 0) -> list[LabelRow]:
    return rows([(entry.label, run) for entry in experiment.entries for run in entry.runs], first)


def overview(experiment: Experiment, found: list[LabelRow], rule: str, full: bool = False) -> Table:
    """The figures that decide, at the rounds that `rule` names; `full` has all that a paper's table would have.

    A row is of one round: that of the model that is deployed. The other models' figures are of that round too.
    """
    metric, model = experiment.history.metric, experiment.model
    shown = {
        f"test {metric}": f"{model}.test_{metric}.mean@{rule}",
        "worst 10 %": f"{model}.test_{metric}.worst_10@{rule}",
        "std of clients": f"{model}.test_{metric}.std@{rule}",
        "attack success": f"{model}.test_{SUCCESS}.mean@{rule}",
    }
    if full:
        shown |= {
            "variance": f"{model}.test_{metric}.variance@{rule}",
            "by examples": f"{model}.test_{metric}.weighted_mean@{rule}",
            "best 10 %": f"{model}.test_{metric}.best_10@{rule}",
            "test loss": f"{model}.test_loss.mean@{rule}",
            "train loss": f"{model}.train_loss.mean@{rule}",
        }
    kept = {head: name for head, name in shown.items() if any(name in row.mean for row in found)}
    others = {
        f"{other} model": {
            e.label: beside(e.runs, other, model, rule, experiment.first) for e in experiment.entries
        }
        for other in ("shared", "selected")
        if other != model and any(other in h.evaluated for e in experiment.entries for h in e.histories)
    }
    spent = {"bytes up": "bytes_up", "bytes down": "bytes_down", "gradients": "gradients_per_client"}
    spent |= {"s": "seconds"} if full else {}
    lines, most = [], max(row.seeds for row in found)
    for row in found:
        gone = f"collapsed: {row.collapsed} of {row.seeds}" if row.collapsed else ""
        marks = ", ".join(filter(None, (of_fewer(row.seeds, most), gone)))
        cells = [figure_cell(row, name) for name in kept.values()]
        cells += [_beside(found_there[row.label], row.seeds) for found_there in others.values()]
        cells.append(figure_cell(row, f"{model}.round@{rule}", whole=True))
        cells += [
            TableCell(human_bytes(row.mean[name]) if "bytes" in name else count(row.mean[name]), row.mean[name])
            for name in spent.values()
        ]
        lines.append((TableCell(f"{row.label} ({marks})" if marks else row.label, row.label), *cells))
    caption = (
        f"{'What clients deploy' if model == 'personal' else 'The shared model'}, {RULES[rule]}; means over "
        f"clients{over_seeds((row.seeds for row in found), most)}. Bytes are of the whole run and all clients, "
        "gradients are minibatch gradients a client."
    )
    if said := whose(run for entry in experiment.entries for run in entry.runs):
        caption += f" {said}"
    if others:
        caption += f" Figures of the {' and the '.join(others)} are of the same round."
    if rule == "best_on_test":
        caption += " This choice looks at the test data: it is here because papers print it."
    return Table(caption, ("method", *kept, *others, "round", *spent), tuple(lines))


def _beside(found: tuple[float, float] | None, seeds: int) -> TableCell:
    return (
        TableCell("–")
        if found is None
        else TableCell(with_spread(found[0], found[1] if seeds > 1 else None), found[0])
    )


def all_figures(found: list[LabelRow]) -> Table:
    """Every figure by its full name, a column an entry."""
    names = dict.fromkeys(name for row in found for name in row.mean)
    lines = [(TableCell(name, name), *(figure_cell(row, name) for row in found)) for name in names]
    over = ", mean ± standard deviation over seeds" if any(row.seeds > 1 for row in found) else ""
    caption = f"Every figure: MODEL.PART_MEASURE.STATISTIC@ROUND{over}."
    return Table(caption, ("figure", *(row.label for row in found)), tuple(lines))


def worst_served(experiment: Experiment) -> Table:
    """The clients that each entry serves worst, by name."""
    metric, better = experiment.history.metric, experiment.history.higher_is_better
    lines = []
    for entry in experiment.entries:
        for values, seeds, federation in _by_client(entry, experiment):
            held = np.flatnonzero(np.isfinite(values))
            held_by = [federation.sizes[part] for part in ("train", "test")]
            order = held[np.argsort(values[held] if better else -values[held], kind="stable")][:_WORST]
            for k in order:
                lines.append(
                    (
                        TableCell(entry.label, entry.label),
                        TableCell(federation.names[k], federation.names[k]),
                        TableCell(short(values[k]), float(values[k])),
                        *(TableCell(f"{sizes[k]:,}", int(sizes[k])) for sizes in held_by),
                        TableCell(_labels_of(federation.labels, k)),
                        TableCell(seeds),
                    )
                )
    columns = ("method", "client", f"test {metric}", "train", "test", "labels (examples)", "seed")
    return Table("The clients that each method serves worst, and what they hold.", columns, tuple(lines))


def differences(experiment: Experiment) -> Table:
    """The settings in which the entries differ."""
    configs = [entry.config for entry in experiment.entries]
    leaves = [flat(config) | flat(config["data"]["settings"], "data") for config in configs]
    lines = [
        (TableCell(name, name), *(TableCell("" if leaf.get(name) is None else str(leaf[name])) for leaf in leaves))
        for name in differing(configs)
    ]
    labels = (entry.label for entry in experiment.entries)
    return Table("Where the settings differ; all else is the same.", ("setting", *labels), tuple(lines))


def full_settings(entry: Entry) -> str:
    """Everything that the first run followed from, as YAML."""
    values = json.loads(json.dumps(plain(entry.config), default=str))  # what is not plain is said in words
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100))


def notices(experiment: Experiment, found: list[LabelRow]) -> list[str]:
    """What a reader must know before comparing: who is not here, collapses, and budgets that are not equal."""
    said = [*experiment.notes]
    for entry in experiment.entries:
        for run in entry.collapsed:
            assert run.collapse is not None
            round, why = run.collapse.round, run.collapse.why
            seed = entry.seeds[entry.runs.index(run)]
            said.append(f"{entry.label}, seed {seed}, collapsed in round {round}: {why}.")
        for seed, run in zip(entry.seeds, entry.runs, strict=True):
            if run.stopped is not None:
                after = f"after round {run.stopped.round} of {run.config['rounds']}"
                said.append(f"{entry.label}, seed {seed}, was stopped {after}: {run.stopped.why}.")
    said += inequalities(experiment, found)
    for entry in experiment.entries:
        if entry.alike:
            many = (
                f"{entry.label}: its {len(entry.runs)} seeds gave the same result up to rounding, and count as one"
            )
            said.append(f"{many}. Nothing was drawn by them: no cohort, no minibatch, no model and no data.")
    if all(row.seeds == 1 for row in found):
        said.append("One seed: there is no spread, and small differences may be chance.")
    return said


def inequalities(experiment: Experiment, found: list[LabelRow]) -> list[str]:
    """In what the entries are not equal, so that their figures are not of the method alone."""
    said = []
    if len(found) > 1:
        if note := compute_note(found):
            said.append(note)
        sent = {row.label: (row.mean["bytes_up"] + row.mean["bytes_down"]) / row.mean["clients"] for row in found}
        if not alike(sent.values()):
            said.append(f"Not at equal bytes: a client sends and receives {grouped(sent, human_bytes)}.")
        said += unlike({entry.label: entry.runs for entry in experiment.entries})
        seeds = {entry.label: sorted(entry.seeds) for entry in experiment.entries}
        if len({tuple(s) for s in seeds.values()}) > 1:
            told = "; ".join(f"{label} has {', '.join(s)}" for label, s in seeds.items())
            said.append(f"Not the same seeds: {told}.")
    return said + at_evaluation(found)


def figure_cell(row: LabelRow, name: str, whole: bool = False) -> TableCell:
    """A figure of a row, with its spread over seeds; as a `whole` number without."""
    if name not in row.mean or not isfinite(row.mean[name]):
        return TableCell("–")
    mean, spread = row.mean[name], row.spread[name]
    if whole:
        return TableCell(f"{mean:.0f}", mean)
    return TableCell(with_spread(mean, spread if row.seeds > 1 else None), mean)


def _by_client(entry: Entry, experiment: Experiment) -> list[tuple[Any, str, Any]]:
    """A client's metric as the mean over seeds, where the clients are the same; else in the first that has one."""
    seeds = per_client(entry, experiment, f"test_{experiment.history.metric}", experiment.model)
    if not seeds:
        return []
    if entry.federation is not None:
        return [
            (
                np.mean(list(seeds.values()), axis=0),
                "all" if len(seeds) == len(entry.runs) > 1 else ", ".join(entry.seeds[place] for place in seeds),
                entry.federation,
            )
        ]
    place = next(iter(seeds))
    return [(seeds[place], entry.seeds[place], entry.histories[place].federation)]


def _labels_of(labels: Any, client: int) -> str:
    if labels is None:
        return "–"
    most = np.argsort(-labels[client], kind="stable")[:4]
    told = ", ".join(f"{c} ({labels[client][c]})" for c in most if labels[client][c])
    return told + (", …" if (labels[client] > 0).sum() > 4 else "")
