"""What the defences of a table of robustness take the number of attackers to be, and whether they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Self

from descant.aggregators import Aggregator, Chain
from descant.aggregators.assumed import Assuming
from descant.aggregators.before import Before
from descant.catalog import build
from descant.errors import SettingError, shown
from descant.experiment.allowed import is_whole, refusal
from descant.experiment.parts import InARow
from descant.experiment.ready import Ready
from descant.importing import importing


@dataclass(frozen=True)
class Assumed:
    """What defences assume: the truth in the table itself, and numbers to hold against it in a grid of its own."""

    truth: bool
    others: tuple[int | float, ...]

    @classmethod
    def of(cls, given: Any) -> Self:
        listed = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
        others = [f for f in listed if f is not True]
        for f in others:
            number = is_whole(f) and f >= 0
            if not number and not (isinstance(f, float) and 0 <= f < 1):
                what = "true (defences know the true share), or a list of numbers of attackers or shares below 1"
                raise refusal("assumed", f, what)
        if len({f"{f:g}" for f in others}) < len(others):
            raise SettingError(f"assumed = {shown(list(listed))}: a number stands twice, as tables round them")
        if len(listed) - len(others) > 1:
            raise SettingError(f"assumed = {shown(list(listed))}: 'true' stands twice; once is enough")
        return cls(len(others) < len(listed), tuple(sorted(others)))


def assumes(defence: Aggregator) -> bool:
    """Whether a defence assumes a number of attackers."""
    return any(isinstance(step, Assuming) for step in _steps(defence))


def told(defence: Aggregator, f: int | float) -> Aggregator:
    """A defence that assumes f attackers, where it assumes some; or the most it survives, where that is less."""
    if isinstance(defence, Chain):
        return replace(defence, steps=tuple(told(step, f) for step in defence.steps))
    if not isinstance(defence, Assuming):
        return defence
    return replace(defence, f=None if isinstance(f, float) and f >= defence.share_below else f)


def guessed(defence: Aggregator, f: int | float, method: str) -> Aggregator:
    """A defence that assumes f attackers; a share that it survives in no round is refused."""
    for step in _steps(defence):
        if isinstance(step, Assuming) and isinstance(f, float) and f >= (below := step.share_below):
            survives = f"a share below {below:g}, since '{step.name}' of '{method}' survives no more"
            raise refusal("assumed", f, f"{survives}; or leave the method out")
    return told(defence, f)


def refuse_cut(f: int | float, method: str, run: Ready) -> None:
    """Refuse an assumed f that the defence would cut to what it survives, also in a round without a loss."""
    messages = _messages(run.method, run.plan.cohort, len(run.parties.data))
    for step, seen in _seen(run.plan.aggregator, messages):
        if step.asked(seen) > (most := step.most(seen)):
            least = f"{most / seen:.2g} at most" if isinstance(f, float) else f"{most} at most"
            survives = f"'{step.name}' of '{method}' survives no more than {most} of {seen} messages"
            raise refusal("assumed", f, f"{least}, since {survives}; or leave the method out")


def beyond(config: Mapping[str, Any], fraction: float) -> str | None:
    """What a recorded defence assumes, where it is the most that it survives, and less than the true fraction."""
    try:
        with importing(False):
            defence = InARow("aggregators").check("aggregator", config["aggregator"])
            method = build("methods", config["method"])
    except SettingError:  # a class that this process does not have
        return None
    for step, seen in _seen(defence, _messages(method, config["cohort"], config["data"]["clients"])):
        most = step.most(seen)
        if (step.f is None or step.asked(seen) > most) and most < ceil(round(fraction * seen, 9)):
            return f"'{step.name}' takes them to be {most} of {seen} messages, the most that it survives"
    return None


def _messages(method: Any, cohort: int, clients: int) -> int:
    """How many messages are combined in a round, if all come: some methods combine what the server holds of all."""
    return clients if method.held else cohort


def _seen(defence: Aggregator, messages: int) -> Iterator[tuple[Assuming, int]]:
    """The steps of a defence that assume attackers, each with the number of messages that come to it."""
    for step in _steps(defence):
        if isinstance(step, Assuming):
            yield step, messages
        if isinstance(step, Before):
            messages = step.left(messages)


def _steps(defence: Aggregator) -> tuple[Aggregator, ...]:
    return defence.steps if isinstance(defence, Chain) else (defence,)
