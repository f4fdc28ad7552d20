"""The numbers behind the charts: an experiment as small tables, means over seeds already taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from descant.experiment import Federation, History
from descant.report.gather import Entry, Experiment

Floats = NDArray[np.float64]
MOST_CLIENTS = 250  # that a chart draws; more are thinned evenly, and the caption says so
_ROUNDS, _ROWS = 250, 5000  # that a chart draws, and that Altair takes


def over_rounds(experiment: Experiment, measure: str, model: str) -> pl.DataFrame:
    """One row an entry and evaluated round: the mean over clients, the worst and the best tenth, what it has cost.

    Numbers are means over seeds, `low` and `high` the least and the greatest seed's mean; `aim` are those rounds
    that a pointer can ask for. A line ends where the
    first of its seeds collapses: a mean over those that are left would flatter it.
    """
    rows: list[dict[str, Any]] = []
    for entry in experiment.entries:
        rows += _curve(entry, f"test_{measure}", model, most=min(_ROUNDS, _ROWS // len(experiment.entries)))
    return pl.DataFrame(rows, infer_schema_length=None)


def _curve(entry: Entry, column: str, model: str, most: int) -> list[dict[str, Any]]:
    curves = [history.curve(model, column) for history in entry.histories]
    common = sorted(set.intersection(*(set(rounds) for rounds, _ in curves)))
    if not common:
        return []
    at = [[rounds.index(t) for t in common] for rounds, _ in curves]
    stacked = {
        name: np.stack([numbers[name][i] for (_, numbers), i in zip(curves, at, strict=True)])
        for name in ("mean", "worst_10", "best_10")
    }
    cost = {
        name: np.mean([[_of_members(h, t, kinds) for t in common] for h in entry.histories], axis=0)
        for name, kinds in (("bytes", ("bytes_up", "bytes_down")), ("gradients", ("examples",)))
    }
    columns = {
        "mean": stacked["mean"].mean(0),
        "low": stacked["mean"].min(0),
        "high": stacked["mean"].max(0),
        "worst": stacked["worst_10"].mean(0),
        "best": stacked["best_10"].mean(0),
    } | cost
    kept = thinned(len(common), most)
    aims = {kept[i] for i in thinned(len(kept), 40)}
    gone = any(run.collapse for run in entry.runs)
    return [
        {"method": entry.label, "round": common[i], "end": bool(gone and i == len(common) - 1), "aim": i in aims}
        | {name: rounded(values[i]) for name, values in columns.items()}
        for i in kept
    ]


def _of_members(history: History, round: int, kinds: tuple[str, ...]) -> float:
    """What a client that takes part has spent of some kinds up to a round, in the mean."""
    members = history.federation.members("all")
    return float(sum(history.spent[round][kind][members].mean() for kind in kinds))


def chosen(experiment: Experiment) -> pl.DataFrame:
    """One row an entry and seed, at the round that is reported: how good, how even, at what cost."""
    metric, model, rule = experiment.history.metric, experiment.model, experiment.rule
    rows = []
    for entry in experiment.entries:
        for run in entry.runs:
            figures = run.summary(experiment.first)
            clients = figures["clients"]
            rows.append(
                {
                    "method": entry.label,
                    "seed": run.config["seed"],
                    "metric": rounded(figures.get(f"{model}.test_{metric}.mean@{rule}", np.nan)),
                    "variance": rounded(figures.get(f"{model}.test_{metric}.variance@{rule}", np.nan)),
                    "loss_variance": rounded(figures.get(f"{model}.test_loss.variance@{rule}", np.nan)),
                    "bytes": (figures["bytes_up"] + figures["bytes_down"]) / clients,
                }
            )
    return pl.DataFrame(rows)


def per_client(entry: Entry, experiment: Experiment, column: str, model: str) -> dict[int, Floats]:
    """A column of every client [N] at the reported round of `experiment.model`, by the run that has one.

    It is NaN for clients without examples, and for those that attack: they are in no other figure either.
    """
    found = {}
    for place, history in enumerate(entry.histories):
        if experiment.rule == "chosen_on_valid":
            t = history.best_round(experiment.model, "valid", experiment.first)
        elif history.collapse is None:
            t = max(history.spent, default=0)
        else:
            continue  # a collapsed run has no last model
        values = history.evaluated.get(model, {}).get(t, {}).get(column)  # type: ignore[arg-type]
        if values is not None:
            counts = (history.federation.sizes[column.split("_")[0]] > 0) & history.federation.members("benign")
            found[place] = np.where(counts, values, np.nan)
    return found


def sorted_clients(experiment: Experiment) -> pl.DataFrame:
    """One row an entry and share of clients: the metric of the client that so many are served worse than."""
    column, rows = f"test_{experiment.history.metric}", []
    most = min(MOST_CLIENTS, _ROWS // len(experiment.entries))
    for entry in experiment.entries:
        found = per_client(entry, experiment, column, experiment.model)
        seeds = [values[np.isfinite(values)] for values in found.values()]
        seeds = [np.sort(values) for values in seeds if len(values)]
        if not seeds:
            continue
        shares = np.linspace(0, 1, min(max(map(len, seeds)), most))
        curve = np.mean([np.interp(shares, np.linspace(0, 1, len(s)), s) for s in seeds], axis=0)
        if not experiment.history.higher_is_better:
            curve = curve[::-1]
        rows += [
            {"method": entry.label, "share": rounded(100 * share), "value": rounded(value)}
            for share, value in zip(shares, curve, strict=True)
        ]
    return pl.DataFrame(rows)


def both_models(entry: Entry, experiment: Experiment) -> pl.DataFrame:
    """One row a client: the metric of its personal and of the shared model, where the entry has both."""
    column = f"test_{experiment.history.metric}"
    personal, shared = (per_client(entry, experiment, column, model) for model in ("personal", "shared"))
    places = [place for place in personal if place in shared]
    if not places:
        return pl.DataFrame()
    if entry.federation is None:  # other clients in every seed: there is no mean over seeds of a client
        places = places[:1]
    mean_personal = np.mean([personal[place] for place in places], axis=0)
    mean_shared = np.mean([shared[place] for place in places], axis=0)
    kept = [i for i in thinned(len(mean_personal), MOST_CLIENTS) if np.isfinite(mean_personal[i] + mean_shared[i])]
    names = entry.histories[places[0]].federation.names
    return pl.DataFrame(
        [
            {
                "method": entry.label,
                "client": names[i],
                "personal": rounded(mean_personal[i]),
                "shared": rounded(mean_shared[i]),
            }
            for i in kept
        ]
    )


def holdings(federation: Federation) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Who holds what: labels by client (empty where targets are no labels), sizes by part."""
    kept = thinned(len(federation.names), drawn_clients(federation))
    labels: list[dict[str, Any]] = []
    if federation.labels is not None:
        totals = federation.labels.sum(1)
        labels = [
            {
                "client": federation.names[k],
                "label": c,
                "examples": int(count),
                "share": rounded(count / max(totals[k], 1)),
            }
            for k in kept
            for c, count in enumerate(federation.labels[k])
            if count
        ]
    sizes = [
        {"client": federation.names[k], "part": part, "place": place, "examples": int(federation.sizes[part][k])}
        for k in kept
        for place, part in enumerate(("train", "valid", "test"))
    ]
    return pl.DataFrame(labels), pl.DataFrame(sizes)


def drawn_clients(federation: Federation) -> int:
    """How many clients the chart of holdings draws: fewer where there are many labels."""
    classes = 1 if federation.labels is None else federation.labels.shape[1]
    return min(len(federation.names), max(1, min(MOST_CLIENTS, _ROWS // max(classes, 3))))


def thinned(count: int, most: int) -> list[int]:
    """At most so many of the numbers 0 to count - 1, evenly, both ends among them."""
    if count <= most:
        return list(range(count))
    return sorted(set(np.linspace(0, count - 1, most).round().astype(int).tolist()))


def rounded(value: float) -> float | None:
    """Five digits are more than a chart shows, and half of the page."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
