"""Poisoned labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from descant.attacks.base import Attack
from descant.context import Context
from descant.data import FederatedData, Part
from descant.draws import uniform
from descant.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class RandomLabels(Attack):
    """Attackers train on labels that were drawn uniformly from all classes, once, before the run.

    Their validation and test data, which serve no benign client, stay as they are.
    """

    name: ClassVar[str] = "random-labels"

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        if data.classes is None:
            raise SettingError(f"attacks: '{self.name}' needs labels, and the data '{data.name}' is a regression")
        train, owners = data.train, data.train.owners
        of_whom = owners if data.numbers is None else data.numbers[owners]
        each = train.targets[:1].numel()  # labels of an example, which may be a sequence
        first = (train.offsets[owners] * each).view(-1, *[1] * (train.targets.dim() - 1))
        client = of_whom.view_as(first)
        label = torch.arange(train.targets.numel(), device=first.device).view(train.targets.shape) - first
        drawn = (uniform(ctx.seed, self.name, client, label) * data.classes).to(train.targets.dtype)
        poisoned = torch.isin(client, who.to(client.device))
        return replace(data, train=Part(train.inputs, torch.where(poisoned, drawn, train.targets), train.offsets))
