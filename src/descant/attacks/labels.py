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
from descant.errors import SettingError, require


@dataclass(frozen=True, kw_only=True)
class RandomLabels(Attack):
    """Attackers train on labels that were drawn uniformly from all classes, once, before the run.

    Their validation and test data, which serve no benign client, stay as they are.
    """

    name: ClassVar[str] = "random-labels"

    def check(self, data: FederatedData) -> None:
        _classes(data)

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        classes = _classes(data)
        train, owners = data.train, data.train.owners
        of_whom = owners if data.numbers is None else data.numbers[owners]
        each = train.targets[:1].numel()  # labels of an example, which may be a sequence
        first = (train.offsets[owners] * each).view(-1, *[1] * (train.targets.dim() - 1))
        client = of_whom.view_as(first)
        label = torch.arange(train.targets.numel(), device=first.device).view(train.targets.shape) - first
        drawn = (uniform(ctx.seed, self.name, client, label) * classes).to(train.targets.dtype)
        poisoned = torch.isin(client, who.to(client.device))
        return replace(data, train=Part(train.inputs, torch.where(poisoned, drawn, train.targets), train.offsets))


@dataclass(frozen=True, kw_only=True)
class FlippedLabels(Attack):
    """Attackers train on other labels: y becomes C - 1 - y, of two classes the other one.

    With `source` and `target`, examples of the one class are labelled as the other, and the rest stay.
    """

    name: ClassVar[str] = "flipped-labels"

    source: int | None = None
    target: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        both = (self.source is None) == (self.target is None)
        require(self, "target", both, "given together with `source`, or not at all")
        for field in ("source", "target"):
            value = getattr(self, field)
            require(self, field, value is None or value >= 0, "the number of a class, or nothing")
        require(self, "target", self.target is None or self.target != self.source, "another class than `source`")

    def check(self, data: FederatedData) -> None:
        for field in ("source", "target"):
            check_class(self, field, data)

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        self.check(data)
        train = data.train
        if self.source is None or self.target is None:
            flipped = _classes(data) - 1 - train.targets
        else:
            flipped = torch.where(train.targets == self.source, self.target, train.targets)
        of_whom = train.owners if data.numbers is None else data.numbers[train.owners]
        poisoned = torch.isin(of_whom, who.to(of_whom.device)).view(-1, *[1] * (train.targets.dim() - 1))
        return replace(data, train=Part(train.inputs, torch.where(poisoned, flipped, train.targets), train.offsets))


def check_class(attack: Attack, field: str, data: FederatedData) -> None:
    """Refuse data that have no labels, or none that is the class in a field of the attack."""
    classes, value = _classes(data), getattr(attack, field)
    if value is not None and value >= classes:
        said = f"the data '{data.name}' has {classes} classes, counted from 0"
        raise SettingError(f"{type(attack).__name__}.{field} = {value}, and {said}")


def _classes(data: FederatedData) -> int:
    """The number of classes; an error where there are none."""
    if data.classes is None:
        raise SettingError(f"the attack needs labels, and the data '{data.name}' is a regression")
    return data.classes
