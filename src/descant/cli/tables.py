"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from rich.console import Console
from rich.table import Table

from descant.cli.fit import Column, print_fitted
from descant.experiment import Run
from descant.experiment.cells import Cell
from descant.experiment.harm import worse_than_alone
from descant.experiment.history import SUCCESS
from descant.experiment.ondata import data_names, data_of
from descant.experiment.table import (
    LabelRow,
    at_evaluation,
    beside,
    compute_note,
    count,
    human_bytes,
    noted,
    of_fewer,
    over_seeds,
    rows,
    share_text,
    short,
    whose,
    with_spread,
)
from descant.experiment.unlike import unlike

_NOTES = 3  # of the data that a table tells
_STATISTICS = ("weighted_mean", "std", "worst_10")


def print_run(run: Run, console: Console) -> None:
    """Print one run: the figures of each model at each named round."""
    figures, metric = run.summary(), run.history.metric
    title = f"{run.config['method']['name']} on {run.config['data']['name']}"
    if run.collapse:
        title += f": collapsed in round {run.collapse.round} ({run.collapse.why})"
    if run.stopped:
        title += f": stopped after round {run.stopped.round} of {run.config['rounds']} ({run.stopped.why})"
    wanted = {f"test {metric}": f"test_{metric}.mean"}
    wanted |= {statistic.replace("_", " "): f"test_{metric}.{statistic}" for statistic in _STATISTICS}
    wanted |= {"test loss": "test_loss.mean", "train loss": "train_loss.mean"}
    if any(f".test_{SUCCESS}." in name for name in figures):
        wanted["attack success"] = f"test_{SUCCESS}.mean"
    whoses = ("", "newcomers.") if figures["newcomers"] else ("",)
    rules = [
        (of, model, rule)
        for of in whoses
        for model in run.history.evaluated
        for rule in ("last", "chosen_on_valid", "best_on_test")
        if f"{model}.round@{rule}" in figures
    ]
    columns = [Column("round", [str(figures[f"{model}.round@{rule}"]) for _, model, rule in rules])]
    ranks = {"weighted mean": 3, "std": 1, "train loss": 2, "test loss": 2}
    for head, name in wanted.items():
        values = [figures.get(f"{of}{model}.{name}@{rule}", float("nan")) for of, model, rule in rules]
        columns.append(Column(head, [short(value, 4) for value in values], ranks.get(head, 0)))
    names = [f"{of.replace('.', ', ')}{model}, {rule.replace('_', ' ')}" for of, model, rule in rules]
    print_fitted(console, "model", names, columns, title=title)
    up, down = human_bytes(figures["bytes_up"]), human_bytes(figures["bytes_down"])
    rounds = f"{figures['rounds']} round{'s' if figures['rounds'] != 1 else ''}"
    console.print(
        f"{rounds}, {up} up, {down} down, "
        f"{count(figures['gradients_per_client'])} minibatch gradients a client, {figures['seconds']:.1f} s"
    )
    notes = [_refused(run), *(f"Note: {note}." for note in noted([run.config]))]
    for said in (*at_evaluation(rows([(str(run.config["label"]), run)])), whose([run]), *notes):
        if said:
            console.print(said, markup=False)


def _refused(run: Run) -> str:
    """How many messages the server did not take, and in which round first; nothing where it took all that came."""
    refused = {row["round"]: row["refused"] for row in run.history.rounds if row["refused"]}
    if not refused:
        return ""
    messages, were = ("message", "was") if sum(refused.values()) == 1 else ("messages", "were")
    said = f"{count(sum(refused.values()))} {messages} {were} refused, from round {min(refused)} on"
    return f"{said}: not finite, or not to be encoded or decoded."


def comparison_table(
    results: Sequence[tuple[Cell, Run]], console: Console, first: int = 0, title: str = "", asked: int = 0
) -> None:
    """Print runs side by side: mean and spread over seeds, at the round chosen on validation data.

    A row of fewer seeds than were `asked` for, or than another has, is marked. Where runs are on several data, or
    judged by several metrics, there is a table for each.
    """
    names = data_names(run for _, run in results)
    for data, name in names.items():
        there = [(cell, run) for cell, run in results if data_of(run) == data]
        on = f"On {name}" if len(names) > 1 else ""
        _side_by_side(there, console, first, f"{title}. {on}" if title and on else title or on, asked)


def comparison_notes(results: Sequence[tuple[Cell, Run]], first: int = 0) -> list[dict[str, str]]:
    """What `comparison_table` says below its figures, for programs: by the data, and all that is noted of them."""
    notes = []
    for data, name in data_names(run for _, run in results).items():
        there = [(cell, run) for cell, run in results if data_of(run) == data]
        found = rows([(cell.label, run) for cell, run in there], first)
        told = noted(run.config for _, run in there)
        other = unlike(_by_label(there))
        said = (compute_note(found), *other, *at_evaluation(found), *(f"Note: {note}." for note in told))
        notes += [{"data": name, "note": note} for note in said if note]
    return notes


def _by_label(results: Sequence[tuple[Cell, Run]]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for cell, run in results:
        found.setdefault(cell.label, []).append(run)
    return found


def _data_notes(runs: Iterable[Run]) -> list[str]:
    """What is noted of the data of some runs, for a terminal: all of it, unless every seed has much of its own."""
    notes = noted(run.config for run in runs)
    said, more = [f"Note: {note}." for note in notes[:_NOTES]], len(notes) - _NOTES
    many = "1 more note like these" if more == 1 else f"{more} more notes like these"
    return said + ([f"(And {many}; the report has all.)"] if more > 0 else [])


def _side_by_side(
    results: Sequence[tuple[Cell, Run]], console: Console, first: int, title: str, asked: int
) -> None:
    """Print runs on the same data, by the same metric."""
    history = results[0][1].history
    model = "personal" if "personal" in history.evaluated else "shared"
    chosen = model in history.evaluated and history.best_round(model, "valid", 0) is not None
    rule = "chosen_on_valid" if chosen else "last"
    metric, found = history.metric, rows([(cell.label, run) for cell, run in results], first)
    by_label = _by_label(results)
    figures = {
        f"test {metric}": (f"{model}.test_{metric}.mean@{rule}", 0),
        "std of clients": (f"{model}.test_{metric}.std@{rule}", 3),
        "worst 10 %": (f"{model}.test_{metric}.worst_10@{rule}", 1),
        "train loss": (f"{model}.train_loss.mean@{rule}", 5),
    }
    backdoor = f"{model}.test_{SUCCESS}.mean@{rule}"
    if any(backdoor in row.mean for row in found):
        figures["attack success"] = (backdoor, 1)
    columns = [Column(head, [_figure(row, name) for row in found], rank) for head, (name, rank) in figures.items()]
    for other in ("shared", "selected"):
        if other != model and any(other in run.history.evaluated for _, run in results):
            cells = [_beside(beside(by_label[row.label], other, model, rule, first), row.seeds) for row in found]
            columns.append(Column(f"{other} model", cells, 4))
    columns += _harmed(by_label, found, rule, first)
    columns += [
        Column("up", [human_bytes(row.mean["bytes_up"]) for row in found], 2),
        Column("down", [human_bytes(row.mean["bytes_down"]) for row in found], 6),
        Column("gradients", [count(row.mean["gradients_per_client"]) for row in found], 2),
    ]
    asked = max(asked, *(row.seeds for row in found))
    names = []
    for row in found:
        gone = f"{row.collapsed} of {row.seeds} collapsed" if row.collapsed else ""
        marks = ", ".join(filter(None, (of_fewer(row.seeds, asked), gone)))
        names.append(f"{row.label} ({marks})" if marks else row.label)
    print_fitted(console, "method", names, columns, title=title)
    shown = "the round chosen on validation data" if rule == "chosen_on_valid" else "the last round"
    over = over_seeds((row.seeds for row in found), asked)
    console.print(
        f"The models that clients deploy, at {shown}; mean over clients{over}. Bytes are of the whole run, "
        "gradients are minibatch gradients a client."
    )
    if said := whose(run for _, run in results):
        console.print(said)
    notes = (*unlike(by_label), *at_evaluation(found), *_data_notes(run for _, run in results))
    for said in (compute_note(found), *notes):
        if said:
            console.print(said, markup=False)


def _harmed(runs: dict[str, list[Run]], found: Sequence[LabelRow], rule: str, first: int) -> list[Column]:
    """The share of clients that are better off alone, where local training is among the runs."""
    shares = worse_than_alone(runs, rule, first)
    cells = [share_text(shares[row.label]) if row.label in shares else "–" for row in found]
    return [Column("worse than alone", cells, 4)] if shares else []


def print_figure(results: Sequence[tuple[Cell, Run]], name: str, console: Console, first: int = 0) -> None:
    """Print one figure by its name: a row a method, a column a seed, and their mean.

    A run may be without it: one that collapses early, say, has no round that could be chosen.
    """
    names = data_names(run for _, run in results)
    on = {data: f", on {of}" if len(names) > 1 else "" for data, of in names.items()}
    figures = [(f"{cell.label}{on[data_of(run)]}", cell.seed, run.summary(first)) for cell, run in results]
    labels = list(dict.fromkeys(label for label, _, _ in figures))
    seeds = list(dict.fromkeys(seed for _, seed, _ in figures))
    values = {(label, seed): found.get(name) for label, seed, found in figures}
    columns = [
        Column(f"seed {seed}", [_number(values.get((label, seed))) for label in labels], 1) for seed in seeds
    ]
    means = [_mean([values.get((label, seed)) for seed in seeds]) for label in labels]
    console.print(name, markup=False)
    print_fitted(console, "method", labels, [*columns, Column("mean", [_number(mean) for mean in means])])


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None


def _number(value: Any) -> str:
    return short(value, 4) if isinstance(value, int | float) else "–" if value is None else str(value)


def _figure(row: LabelRow, name: str) -> str:
    if name not in row.mean or not isfinite(row.mean[name]):
        return "–"
    return with_spread(row.mean[name], row.spread[name] if row.seeds > 1 else None)


def _beside(found: tuple[float, float] | None, seeds: int) -> str:
    return "–" if found is None else with_spread(found[0], found[1] if seeds > 1 else None)


def entries_table(kind: str, entries: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=kind, title_justify="left", show_lines=True)
    for heading in ("name", "what it is", "settings"):
        table.add_column(heading)
    for entry in entries:
        fields = ", ".join(f["name"] if f["required"] else f"{f['name']}={f['default']}" for f in entry["fields"])
        table.add_row(entry["name"], entry["summary"], fields)
    return table


def presets_table(kind: str, presets: Sequence[dict[str, Any]]) -> Table:
    """Names that stand for several parts: what they are, the parts, and the shares of attackers in the paper."""
    table = Table(title=f"presets of {kind}", title_justify="left", show_lines=True)
    for heading in ("name", "what it is", f"the same {kind}", "malicious"):
        table.add_column(heading)
    for preset in presets:
        parts = (
            f"{part['name']}({', '.join(f'{f}={_brief(v)}' for f, v in part.items() if f != 'name')})"
            for part in preset["parts"]
        )
        table.add_row(preset["name"], preset["summary"], ", ".join(parts), ", ".join(map(str, preset["malicious"])))
    return table


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def kinds_table(names: dict[str, list[str]]) -> Table:
    """What can be listed: the kinds of things that settings name, with their names."""
    table = Table(title="descant list KIND shows one of these", title_justify="left", show_lines=True)
    for heading in ("kind", "names"):
        table.add_column(heading)
    for kind, known in names.items():
        table.add_row(kind, ", ".join(known) or "none yet")
    return table
