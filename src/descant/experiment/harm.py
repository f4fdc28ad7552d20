"""Who is harmed by taking part: clients that end with a worse model than they would have had alone.

A mean over clients can rise while some of them lose; Motley (Wu et al., 2022) looks for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from descant.experiment.history import Federation, History
from descant.experiment.run import Run
from descant.metrics import Floats, share_worse


def worse_than_alone(runs: Mapping[str, Sequence[Run]], rule: str, first: int = 0) -> dict[str, list[float]]:
    """For every label, and every one of its runs, the share of clients that training alone would serve better.

    Alone is the run of the method local that has the same seed, data and newcomers, and of several the one with the
    nearest number of example gradients. A label is left out if it is local itself, or has a run that no such one
    goes with.
    """
    alone = [run for of_label in runs.values() for run in of_label if run.config["method"]["name"] == "local"]
    found = {}
    for label, of_label in runs.items():
        shares = [_worse(run, partner, rule, first) for run in of_label for partner in [_partner(run, alone)]]
        kept = [share for share in shares if share is not None and isfinite(share)]
        if kept and len(kept) == len(shares) and not any(run in alone for run in of_label):
            found[label] = kept
    return found


def _partner(run: Run, alone: Sequence[Run]) -> Run | None:
    """The run of local training to hold a run against."""
    fitting = [other for other in alone if _problem(other) == _problem(run)]
    fitting = [other for other in fitting if _same_parties(run.history.federation, other.history.federation)]
    spent = run.summary()["examples_per_client"]
    return min(fitting, key=lambda other: abs(other.summary()["examples_per_client"] - spent), default=None)


def _problem(run: Run) -> list[Any]:
    """The seed, the data and the task of a run; what was noted of the data may be more than it was."""
    data = {name: told for name, told in run.config["data"].items() if name != "notes"}
    return [run.config["seed"], data, run.config.get("task")]


def _worse(run: Run, alone: Run | None, rule: str, first: int) -> float | None:
    """The share of benign clients that are served worse on test data, each run in the round that `rule` names."""
    if alone is None:
        return None
    ours, theirs = (_by_client(r.history, r.summary(first), rule) for r in (run, alone))
    if ours is None or theirs is None:
        return None
    members = run.history.federation.members("benign")
    return share_worse(ours[members], theirs[members], run.history.higher_is_better)


def _same_parties(ours: Federation, theirs: Federation) -> bool:
    """Whether the same clients took part in two runs: one that came later has learned otherwise."""
    return ours.names == theirs.names and np.array_equal(ours.members("all"), theirs.members("all"))


def _by_client(history: History, summary: Mapping[str, Any], rule: str) -> Floats | None:
    """The test metric [N] of what clients deploy."""
    round = summary.get(f"personal.round@{rule}")
    if round is None or (rule == "last" and history.collapse is not None):
        return None
    return history.evaluated["personal"][round].get(f"test_{history.metric}")
