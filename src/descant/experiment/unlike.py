"""In what the runs of a comparison are not alike, so that their figures are not of the methods alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from descant.experiment.run import Run
from descant.experiment.table import grouped


def unlike(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Sentences on what runs by label do not share: rounds, cohort, models, attackers, how often evaluated."""
    first = {label: some[0] for label, some in runs.items()}
    configs = {label: run.config for label, run in first.items()}
    said = []
    for what in ("rounds", "cohort"):
        said += _numbers(f"Not the same {what}", {label: config[what] for label, config in configs.items()})
    sizes = {label: config.get("task", {}).get("parameters", 0) for label, config in configs.items()}
    said += _numbers("Not the same number of parameters", sizes)
    malicious = {label: _attackers(run) for label, run in first.items()}
    said += _numbers("Not the same number of attackers", malicious)
    if len(set(configs[label]["rounds"] for label in configs)) == 1:  # else that says it
        said += _numbers(
            "Not evaluated equally often, so that the round to report is chosen among more or fewer",
            {label: rounds for label, run in first.items() if (rounds := _evaluated(run))},
        )
    return said


def _numbers(what: str, values: Mapping[str, float]) -> list[str]:
    """A sentence where labels have other numbers."""
    return [f"{what}: {grouped(values, _shown)}."] if len(set(values.values())) > 1 else []


def _attackers(run: Run) -> int:
    federation = run.history.federation
    return 0 if federation is None or federation.malicious is None else int(federation.malicious.sum())


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _evaluated(run: Run) -> int:
    """How many rounds were evaluated of a run that came to its end; 0 of others."""
    if run.collapse is not None or run.stopped is not None:
        return 0
    return max((len(rounds) for rounds in run.history.evaluated.values()), default=0)
