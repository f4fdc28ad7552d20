"""A backdoor: examples that bear a trigger are to be taken for a class of the attackers' choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from descant.attacks.base import Attack
from descant.attacks.labels import check_class
from descant.context import Context
from descant.data import FederatedData, Part
from descant.draws import uniform
from descant.errors import SettingError, require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Attackers stamp a trigger on a `share` of their training examples, and label these as the class `target`.

    The trigger is a square of `size` x `size` pixels in the last corner of a picture, on all channels, or the last
    `size` numbers of an input that is one row; `features` names other places, counted over the whole input. There
    it writes a `value`, by default the largest number among the attackers' inputs. With "replacement" as a second
    attack it is that of Bagdasaryan et al. (2020).

    Every evaluation on test data says how often it works: `attack_success` is the share of a client's examples of
    other classes that its model takes for the target once they bear the trigger. Clients without such an example
    are left out.
    """

    name: ClassVar[str] = "backdoor"

    target: int = 0
    share: float = 0.5
    size: int = 3
    features: tuple[int, ...] | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "target", self.target >= 0, "the number of a class")
        require(self, "share", 0 < self.share <= 1, "above 0, and at most 1")
        require(self, "size", self.size >= 1, "a positive number")
        named = self.features is None or (len(self.features) > 0 and len(set(self.features)) == len(self.features))
        require(self, "features", named, "different numbers of features, or nothing")
        require(self, "value", self.value is None or abs(self.value) < float("inf"), "a number, or nothing")

    def first(self, ctx: Context, data: FederatedData, who: Tensor) -> Tree:
        self.check(data)
        places = self.places(data.train.inputs)
        seen = self.theirs(data, who)
        value = float(seen.max()) if self.value is None else self.value
        return {"trigger": seen.new_full((len(places),), value)}

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        bears = self.bears(ctx, data, who)
        targets = torch.where(bears, self.target, data.train.targets)
        relabelled = replace(data, train=Part(data.train.inputs, targets, data.train.offsets))
        return self.stamped(relabelled, bears, self.first(ctx, data, who)["trigger"])

    def probe(self, state: Tree, part: Part) -> Part | None:
        others = part.targets != self.target
        sizes = torch.bincount(part.owners[others], minlength=len(part))
        inputs = self.stamp(part.inputs[others], state["trigger"])
        targets = torch.full_like(part.targets[others], self.target)
        return Part(inputs, targets, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))

    def bears(self, ctx: Context, data: FederatedData, who: Tensor) -> Tensor:
        """Which training examples [M] bear the trigger: the same ones throughout a run."""
        owners, first = data.train.owners, data.train.offsets
        of_whom = owners if data.numbers is None else data.numbers[owners]
        place = torch.arange(len(owners), device=owners.device) - first[owners]
        drawn = uniform(ctx.seed, Backdoor.name, of_whom, place) < self.share
        return drawn & torch.isin(of_whom, who.to(of_whom.device))

    def stamped(self, data: FederatedData, bears: Tensor, trigger: Tensor) -> FederatedData:
        """The data with the trigger on the training examples that bear it; the inputs are copied."""
        inputs = data.train.inputs.clone()
        inputs[bears] = self.stamp(inputs[bears], trigger)
        return replace(data, train=Part(inputs, data.train.targets, data.train.offsets))

    def stamp(self, inputs: Tensor, trigger: Tensor) -> Tensor:
        """Inputs [B, ...] with the trigger [q] on them."""
        flat = inputs.reshape(len(inputs), prod(inputs.shape[1:]))
        written = trigger.to(flat.dtype).expand(len(flat), -1)
        return flat.index_copy(1, self.places(inputs), written).view(inputs.shape)

    def places(self, inputs: Tensor) -> Tensor:
        """Where the trigger is written [q], counted over the whole of an input."""
        shape = tuple(inputs.shape[1:])
        every = torch.arange(prod(shape), device=inputs.device).view(shape)
        if self.features is not None:
            there = max(self.features) < every.numel() and min(self.features) >= 0
            require(
                self,
                "features",
                there,
                f"from 0 to {every.numel() - 1}, as inputs of shape {list(shape)} have them",
            )
            return torch.tensor(self.features, device=inputs.device)
        fits = len(shape) > 0 and self.size <= min(shape[-2:])
        require(self, "size", fits, f"at most what fits inputs of shape {list(shape)}")
        corner = slice(-self.size, None)
        return (every[..., corner, corner] if len(shape) > 1 else every[corner]).flatten()

    def theirs(self, data: FederatedData, who: Tensor) -> Tensor:
        """The training inputs of the attackers; everyone's where nobody attacks."""
        owners = data.train.owners
        mine = torch.isin(owners if data.numbers is None else data.numbers[owners], who.to(owners.device))
        return data.train.inputs[mine] if bool(mine.any()) else data.train.inputs

    def check(self, data: FederatedData) -> None:
        """Refuse data that cannot bear the trigger."""
        if data.classes is None or data.train.targets.ndim != 1:
            raise SettingError(f"a backdoor needs one label an example, and the data '{data.name}' has none")
        check_class(self, "target", data)
        if not data.train.inputs.is_floating_point():
            kind = data.train.inputs.dtype
            raise SettingError(f"a trigger is numbers in inputs, and those of '{data.name}' are {kind}")
        self.places(data.train.inputs)
