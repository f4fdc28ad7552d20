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
        train = data.train
        poisoned = torch.isin(train.owners, data.places(who.to(train.offsets.device)))
        example = torch.arange(train.targets.numel(), device=train.targets.device).view(train.targets.shape)
        drawn = (uniform(ctx.seed, self.name, example) * data.classes).to(train.targets.dtype)
        mask = poisoned.view(-1, *[1] * (train.targets.dim() - 1))
        return replace(data, train=Part(train.inputs, torch.where(mask, drawn, train.targets), train.offsets))
