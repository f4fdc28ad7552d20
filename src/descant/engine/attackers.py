"""The attackers of a federation: what they remember, what they train on, and what they send."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.attacks import Attack, Defence, Sight
from descant.context import Context
from descant.data import FederatedData, Part
from descant.mail import Mail
from descant.mirrors import host
from descant.trees import Tree, under, within


class Attackers:
    """The malicious clients with the numbers `who` [M], and their attacks, one after the other.

    `memory` is what they remember, by attack.
    """

    def __init__(self, attacks: tuple[Attack, ...], who: Tensor) -> None:
        self.attacks, self.who = attacks, who
        self.memory: Tree = {}

    def poison(self, ctx: Context, data: FederatedData) -> FederatedData:
        """The data as they train on it from the first round on; called once."""
        party = ctx.of_parties(self.who)
        for i, attack in enumerate(self.attacks):
            self._keep(i, attack.first(party, data, self.who))
            data = attack.poison(party, data, self.who)
        return data

    def look(self, ctx: Context, data: FederatedData, sight: Sight) -> FederatedData:
        """What they train on in a round, once they have looked at the model."""
        if not len(self.who):
            return data
        party = ctx.of_parties(self.who)
        for i, attack in enumerate(self.attacks):
            memory = attack.adapt(party, self._of(i), data, self.who, sight)
            if memory is not None:
                self._keep(i, memory)
                data = attack.recall(party, memory, data, self.who)
        return data

    def recall(self, ctx: Context, memory: Tree, data: FederatedData) -> FederatedData:
        """What they train on once they remember this again."""
        self.memory = memory
        for i, attack in enumerate(self.attacks if len(self.who) else ()):
            data = attack.recall(ctx.of_parties(self.who), self._of(i), data, self.who)
        return data

    def among(self, mail: Mail) -> Tensor:
        """Which messages [S] are theirs, in the processor's memory."""
        numbers = host(mail.clients)
        if not len(self.who):
            return torch.zeros_like(numbers, dtype=torch.bool)
        return torch.isin(numbers, host(self.who))

    def forge(self, ctx: Context, mine: Mail, benign: Mail, defence: Defence) -> Mail:
        """What they send in the place of their honest mail."""
        party = ctx.of_parties(mine.clients)
        for i, attack in enumerate(self.attacks):
            memory, mine = attack.against(party, self._of(i), mine, benign, defence)
            self._keep(i, memory)
        return mine

    def probe(self, part: Part) -> Part | None:
        """Examples that they want to be answered as they say, made of a part's, if they want any."""
        found = (attack.probe(self._of(i), part) for i, attack in enumerate(self.attacks))
        return next((probe for probe in found if probe is not None), None)

    def _of(self, i: int) -> Tree:
        return within(str(i), self.memory)

    def _keep(self, i: int, memory: Tree) -> None:
        self.memory |= under(str(i), memory)
