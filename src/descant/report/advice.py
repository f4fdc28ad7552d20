"""What a comparison of local training, personalization and one shared model says to do, and how sure it is."""

from __future__ import annotations

from descant.experiment.table import short
from descant.report.gather import Entry, Experiment
from descant.report.verdict import Paired, gap_text, gaps_of, ranked, unbeaten, verdict

# From the simplest on: what nothing speaks against surely is advised before what costs more.
_ACTIONS = {"local": "train alone", "fedavg": "share one model"}
_PERSONALIZE = "personalize"
_WHY = {"train alone": "nothing travels", "share one model": "there is one model for all"}


def advice(experiment: Experiment) -> str:
    """One sentence or two: 'Here: train alone', 'personalize' or 'share one model', with paired differences."""
    order, better = ranked(experiment), experiment.history.higher_is_better
    if len(order) < 2:
        return ""
    best, gaps = order[0][0], gaps_of(order[0], order, better)
    if not unbeaten(gaps.values()):  # with other seeds each, nothing is to be advised
        return verdict(experiment)
    simplest = sorted(order, key=lambda row: [*_ACTIONS.values(), _PERSONALIZE].index(action(row[0])))
    entry, _, figure = next(row for row in simplest if row[0] is best or _as_good(gaps[row[0].label]))
    said = f"Here: {action(entry)}. {entry.label} has a test {experiment.history.metric} of {short(figure)}"
    if entry is best:
        parts = [f"{_over(gap, label)} ({gap.support})" for label, gap in gaps.items() if gap]
        level = [label for label, gap in gaps.items() if gap and _as_good(gap)]
        told = (
            f" {' and '.join(level)} {'is' if len(level) == 1 else 'are'} not told apart from it, and no simpler."
        )
        return f"{said}, {'; '.join(parts)}." + (told if level else "")
    gap = gaps[entry.label]
    assert gap is not None
    simpler = f"so choose what is simpler: {_WHY[action(entry)]}."
    if not gap.mean:
        return f"{said}. {best.label} is level with it; {simpler}"
    return (
        f"{said}. {best.label} is {gap_text(gap.mean)} ahead, which these seeds do not tell from chance "
        f"({gap.support}); {simpler}"
    )


def _over(gap: Paired, label: str) -> str:
    return f"{gap_text(gap.mean)} over {label}" if gap.mean else f"level with {label}"


def action(entry: Entry) -> str:
    """What it means to choose an entry."""
    return _ACTIONS.get(entry.config["method"]["name"], _PERSONALIZE)


def _as_good(gap: Paired | None) -> bool:
    """Whether the best is not surely better; one seed is no ground to prefer another than the best."""
    return gap is not None and gap.seeds > 1 and not gap.ahead
