"""A run in a few words: the round to report, and the text that stands for the run."""

from __future__ import annotations

from typing import Any, NamedTuple

from descant.errors import SettingError, shown, unknown
from descant.experiment.allowed import is_whole
from descant.experiment.history import History

_CHOSEN = {"chosen_on_valid": "chosen on validation data", "last": "the last round"}


class Best(NamedTuple):
    """The round to report of a run. `mean` and `worst_10` are of the test metric across clients, as in `summary`;
    bytes (of all clients) and gradients (a client) are what was spent up to this round."""

    model: str
    round: int
    rule: str  # how the round was chosen: "chosen_on_valid", or "last"
    mean: float
    worst_10: float
    bytes_up: int
    bytes_down: int
    gradients_per_client: float


def best(history: History, model: str | None = None, first: int = 0) -> Best:
    """The round chosen on validation data, or the last where there are none, with its figures."""
    known = list(history.evaluated)
    model = model or ("personal" if "personal" in known else known[0])
    if model not in known:
        raise unknown("evaluated model", model, known)
    last = max(history.evaluated[model])  # a run that collapsed may have gone on for some rounds after it
    if not is_whole(first) or not 0 <= first <= last:
        said = f"it must be a whole number from 0 to {last}, the last round in which the run was evaluated"
        raise SettingError(f"first = {shown(first)}: {said}")
    figures = history.summary(first)
    rule = "chosen_on_valid" if f"{model}.round@chosen_on_valid" in figures else "last"
    round = figures[f"{model}.round@{rule}"]
    until = [row for row in history.rounds if row["round"] <= round]
    nothing = float("nan")  # where no test part was evaluated
    return Best(
        model=model,
        round=round,
        rule=rule,
        mean=figures.get(f"{model}.test_{history.metric}.mean@{rule}", nothing),
        worst_10=figures.get(f"{model}.test_{history.metric}.worst_10@{rule}", nothing),
        bytes_up=sum(row["bytes_up"] for row in until),
        bytes_down=sum(row["bytes_down"] for row in until),
        gradients_per_client=sum(row["gradients"] for row in until) / figures["clients"],
    )


def run_text(config: dict[str, Any], history: History) -> str:
    """What a run is, and what came out: two lines."""
    from descant.experiment.table import count, human_bytes, short

    name, method = config.get("label"), config["method"]["name"]
    title = method if name in (None, method) else f"{name}, {method}"
    clients, rounds = int(history.federation.members("all").sum()), len(history.rounds)
    about = f"Run({title} on {config['data']['name']}, {clients} clients, seed {config['seed']}: {rounds} rounds"
    if history.stopped is not None:
        about += f" of {config['rounds']}, stopped: {history.stopped.why}"
    if history.collapse is not None:
        about += f", collapsed in round {history.collapse.round}: {history.collapse.why}"
    if not history.evaluated:
        return f"{about})"
    found = best(history)
    return (
        f"{about}\n    test {history.metric} {short(found.mean)}, worst tenth of clients {short(found.worst_10)}, "
        f"in round {found.round} ({_CHOSEN[found.rule]}); until then {human_bytes(found.bytes_up)} up, "
        f"{human_bytes(found.bytes_down)} down, {count(found.gradients_per_client)} gradients a client)"
    )
