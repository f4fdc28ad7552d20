"""What a simulation is to do: the settings that are neither data, task nor method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from descant.aggregators import Aggregator, Before, Chain, Mean
from descant.attacks import Attack
from descant.codecs import Codec, Native, Uniform
from descant.engine.cohort import Sampling
from descant.engine.evaluation import Evaluation
from descant.engine.health import Health
from descant.errors import NotTogetherError, SettingError
from descant.mail import Form
from descant.methods import Method
from descant.saying import HOW_TO_SEND


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a simulation that are neither data, task nor method."""

    rounds: int = 1
    cohort: int
    seed: int = 0
    sampling: Sampling = "uniform"
    trainers: Literal["cohort", "everyone"] = "cohort"
    own_start: bool = False
    stragglers: float = 0.0
    lost: float = 0.0
    drop_last: bool = False
    keep_nonfinite: bool = False
    chunk: int | None = None  # how many clients to process at once, where that was asked for
    evaluation: Evaluation = field(default_factory=Evaluation)
    health: Health | None = None  # None looks at nothing
    aggregator: Aggregator = field(default_factory=Mean)
    codec: Codec = field(default_factory=Native)
    downlink: Codec = field(default_factory=Native)
    attacks: tuple[Attack, ...] = ()
    malicious: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # [M] numbers
    newcomer_rounds: int = 1  # of work that clients do who come later
    secret: int | None = None  # what the parties' own secrets are derived from; None draws one from the system

    def check(self, method: Method) -> None:
        """Refuse what the method, the codecs and the aggregator cannot do together."""
        asked = {
            "own_start": self.own_start,
            "trainers": self.trainers == "everyone",
            "aggregator": not isinstance(self.aggregator, Mean),
            "codec": self.codec.updates and not isinstance(self.codec, Uniform),
            "downlink": not self.downlink.exact,
        }
        for setting, why in method.refuses.items():
            if asked.get(setting):  # newcomers and statistics are checked where they are
                raise NotTogetherError(setting, f"not with the method '{method.name}': {why}")
        if self.codec.updates and not method.sends and not method.mute:
            raise NotTogetherError(
                "codec",
                f"'{self.codec.name}' acts on updates, and the method '{method.name}' does not say what it "
                f"sends (`sends`): say it, as in {HOW_TO_SEND}, or use a codec of plain numbers, such as native or "
                "float16",
            )
        for attack in self.attacks if not method.sends and not method.mute else ():
            if attack.updates:
                raise NotTogetherError(
                    "attacks",
                    f"'{attack.name}' is to act on updates here, and the method '{method.name}' does not say what "
                    f"it sends (`sends`): it would change nothing. Say it, as in {HOW_TO_SEND}",
                )
        if sum(type(attack).probe is not Attack.probe for attack in self.attacks) > 1:
            raise SettingError("attacks: there are two backdoors, and figures are of one: leave one out")
        steps = self.aggregator.steps if isinstance(self.aggregator, Chain) else (self.aggregator,)
        for step in steps if not method.sends and not method.mute else ():
            if isinstance(step, Before) and step.updates:
                raise NotTogetherError(
                    "aggregator",
                    f"'{step.name}' acts on updates, and the method '{method.name}' does not say what it sends "
                    f"(`sends`): it would change nothing. Say it, as in {HOW_TO_SEND}",
                )
        if self.downlink.updates and self.own_start and not method.mute:
            raise NotTogetherError(
                "downlink",
                f"'{self.downlink.name}' says how a broadcast moved from the model that all begin with, and with "
                "own_start every client begins with another: use a codec of plain numbers, such as float16",
            )
        if not self.downlink.updates and self.downlink.size(Form((), (), ())) is None:
            raise SettingError(
                f"downlink: '{self.downlink.name}' does not say how long its payloads are (`size`): take another "
                "codec of plain numbers, such as native or float16, or one of updates, such as stc"
            )
        if self.aggregator.reads and method.held:
            raise NotTogetherError(
                "aggregator",
                f"'{self.aggregator.name}' chooses among the messages of a round, and the method '{method.name}' "
                "combines what the server holds of all clients",
            )
        self._check_memory(method)
        if method.weighs and not self.aggregator.weighs:
            raise NotTogetherError(
                "aggregator",
                f"'{self.aggregator.name}' takes all messages alike, and the method '{method.name}' lives by their "
                "weights: use one that heeds them, such as mean, coordinate-median, geometric-median or "
                "centered-clipping",
            )
        if len(self.malicious) and not self.attacks:
            raise SettingError(
                "malicious: some clients attack, and nothing says how: name what they do, as in attacks: sign-flip"
            )

    def _check_memory(self, method: Method) -> None:
        """Refuse what remembers messages where those of the next round lie in another space."""
        if not method.turns:
            return
        elsewhere = f"and the messages of '{method.name}' lie in another subspace in each round"
        like, fixed = {"leaf": torch.zeros(1, 8)}, "or a projection that is not fresh"
        if self.codec.updates and (self.codec.memory(like) or self.codec.copies(like)):
            forgets = hasattr(self.codec, "feedback")
            remedy = f"{'set its feedback to false, ' if forgets else ''}take another codec, {fixed}"
            raise NotTogetherError("codec", f"'{self.codec.name}' remembers what it sent, {elsewhere}: {remedy}")
        if self.aggregator.remembers:
            name = self.aggregator.name
            raise NotTogetherError(
                "aggregator",
                f"'{name}' remembers the last round's aggregate, {elsewhere}: take another aggregator, {fixed}",
            )


def carrier(codec: Codec, method: Method) -> Codec:
    """The codec that carries a method's messages: the run's, or what native is for a method that rounds them."""
    how = method.rounding
    if how is None or not isinstance(codec, Native):
        return codec
    return Uniform(bits=how.bits, span=how.span, nearest=how.nearest, rotate=how.rotate)
