"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from descant.errors import unknown
from descant.experiment import Run
from descant.experiment.grid import Cell
from descant.experiment.table import Row, human_bytes, rows, unequal

_STATISTICS = ("mean", "weighted_mean", "std", "worst_10")


def run_table(run: Run) -> Table:
    """One run: the figures of each model at each named round."""
    figures, metric = run.summary(), run.history.metric
    title = f"{run.config['method']['name']} on {run.config['data']['name']}"
    if run.collapse:
        title += f": collapsed in round {run.collapse.round} ({run.collapse.why})"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("model", "round", f"test {metric}", *_STATISTICS[1:], "test loss", "train loss"):
        table.add_column(heading.replace("_", " "), justify="left" if heading == "model" else "right")
    for model in run.history.evaluated:
        for rule in ("last", "chosen_on_valid", "best_on_test"):
            if (at := figures.get(f"{model}.round@{rule}")) is None:
                continue
            wanted = [f"test_{metric}.{s}" for s in _STATISTICS] + ["test_loss.mean", "train_loss.mean"]
            values = [figures.get(f"{model}.{name}@{rule}", float("nan")) for name in wanted]
            where = f"{at}, {rule.replace('_', ' ')}"
            table.add_row(model, where, *(f"{value:.4f}" for value in values))
    up, down = human_bytes(figures["bytes_up"]), human_bytes(figures["bytes_down"])
    table.caption = (
        f"{figures['rounds']} rounds, {up} up, {down} down, "
        f"{figures['gradients_per_client']:.0f} minibatch gradients a client, {figures['seconds']:.1f} s"
    )
    table.caption_justify = "left"
    return table


def comparison_table(
    results: Sequence[tuple[Cell, Run]], console: Console, first: int = 0, title: str = ""
) -> None:
    """Print runs side by side: mean and spread over seeds, at the round chosen on validation data."""
    history = results[0][1].history
    model = "personal" if "personal" in history.evaluated else "shared"
    chosen = model in history.evaluated and history.best_round(model, "valid", 0) is not None
    rule = "chosen_on_valid" if chosen else "last"
    metric, found = history.metric, rows([(cell.label, run) for cell, run in results], first)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    selects = any("selected" in run.history.evaluated for _, run in results)
    heads = (
        f"test {metric}",
        "std of clients",
        "worst 10 %",
        "train loss",
        "shared model",
        *(("selected model",) if selects else ()),
        "up",
        "down",
        "gradients",
    )
    table.add_column("method")
    for head in heads:
        table.add_column(head, justify="right")
    for row in found:
        name = row.label if not row.collapsed else f"{row.label} ({row.collapsed} of {row.seeds} collapsed)"
        cells = [
            _with_spread(row, f"{model}.test_{metric}.mean@{rule}"),
            _with_spread(row, f"{model}.test_{metric}.std@{rule}"),
            _with_spread(row, f"{model}.test_{metric}.worst_10@{rule}"),
            _with_spread(row, f"{model}.train_loss.mean@{rule}"),
            _with_spread(row, f"shared.test_{metric}.mean@{rule}"),
            *([_with_spread(row, f"selected.test_{metric}.mean@{rule}")] if selects else []),
            human_bytes(row.mean["bytes_up"]),
            human_bytes(row.mean["bytes_down"]),
            f"{row.mean['gradients_per_client']:.0f}",
        ]
        table.add_row(escape(name), *cells)
    console.print(table)
    shown = "the round chosen on validation data" if rule == "chosen_on_valid" else "the last round"
    seeds = max(row.seeds for row in found)
    console.print(
        f"The models that clients deploy, at {shown}; mean over clients, ± standard deviation over {seeds} "
        "seed(s). Bytes are of the whole run, gradients are minibatch gradients a client."
    )
    if differ := unequal(found):
        spent = ", ".join(f"{label} {count:,.0f}" for label, count in differ.items())
        console.print(f"Not at equal compute: example gradients a client are {spent}.")


def figure_table(results: Sequence[tuple[Cell, Run]], name: str, first: int = 0) -> Table:
    """One figure by its name: a row a method, a column a seed, and their mean."""
    figures = [(cell.label, cell.settings.seed, run.summary(first)) for cell, run in results]
    known = dict.fromkeys(figure for _, _, found in figures for figure in found)
    if name not in known:
        raise unknown("figure", name, known)
    seeds = list(dict.fromkeys(seed for _, seed, _ in figures))
    table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for head in (*(f"seed {seed}" for seed in seeds), "mean"):
        table.add_column(head, justify="right", no_wrap=True)
    for label in dict.fromkeys(label for label, _, _ in figures):
        own = {seed: found.get(name) for row, seed, found in figures if row == label}
        values = [own.get(seed) for seed in seeds]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        mean = sum(numbers) / len(numbers) if len(numbers) == len(seeds) else None
        table.add_row(escape(label), *(short(value) for value in (*values, mean)))
    return table


def short(value: Any) -> str:
    """A figure with four digits after the point, or five where it is small; what is missing is a dash."""
    if value is None or value != value:
        return "-"
    return f"{value:.4g}" if abs(value) >= 1000 or 0 < abs(value) < 0.01 else f"{value:.4f}"


def _with_spread(row: Row, figure: str) -> str:
    if figure not in row.mean:
        return "-"
    return f"{row.mean[figure]:.3f}" + (f" ±{row.spread[figure]:.3f}" if row.seeds > 1 else "")


def entries_table(kind: str, entries: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=kind, title_justify="left", show_lines=True)
    for heading in ("name", "what it is", "settings"):
        table.add_column(heading)
    for entry in entries:
        fields = ", ".join(f["name"] if f["required"] else f"{f['name']}={f['default']}" for f in entry["fields"])
        table.add_row(entry["name"], entry["summary"], fields)
    return table
