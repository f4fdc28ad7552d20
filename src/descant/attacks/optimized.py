"""A backdoor whose trigger is looked for on the model that it is to open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.attacks.backdoor import Backdoor
from descant.attacks.base import Sight
from descant.context import Context
from descant.data import FederatedData
from descant.draws import uniform
from descant.errors import require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class OptimizedBackdoor(Backdoor):
    """A backdoor whose trigger attackers look for on the shared model, before every `every`-th round.

    What is written where the trigger is begins as a random pattern, and takes `steps` steps down the loss of the
    target, by the signs of the gradient and `rate` times the range of the attackers' inputs, in which it stays; the
    best pattern on the way counts. The loss is the mean over at most `examples` of the attackers' examples with the
    trigger on them. Of a method without a shared model, it is over the attackers' personal ones. (A fixed trigger
    rarely survives personalisation: this one follows the model, as A3FL's does, Zhang et al., 2023.)
    """

    name: ClassVar[str] = "optimized-backdoor"

    steps: int = 10
    rate: float = 0.1
    every: int = 1
    examples: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "value", self.value is None, "nothing: the pattern is looked for")
        require(self, "steps", self.steps >= 1, "a positive number")
        require(self, "rate", 0 < self.rate <= 1, "above 0, and at most 1")
        require(self, "every", self.every >= 1, "a positive number of rounds")
        require(self, "examples", self.examples >= 1, "a positive number")

    def first(self, ctx: Context, data: FederatedData, who: Tensor) -> Tree:
        trigger, seen = super().first(ctx, data, who)["trigger"], self.theirs(data, who)
        drawn = ctx.at(0).uniform(self.name, tuple(trigger.shape)).to(trigger)
        return {"trigger": seen.min() + (seen.max() - seen.min()) * drawn}

    def adapt(self, ctx: Context, state: Tree, data: FederatedData, who: Tensor, sight: Sight) -> Tree | None:
        if (ctx.round - 1) % self.every:
            return None
        seen, models = self.theirs(data, who), sight()
        low, high = seen.min(), seen.max()
        order = uniform(ctx.seed, self.name, torch.arange(len(seen), device=seen.device)).argsort()
        inputs = seen[order[: self.examples]]
        wanted = torch.full((len(inputs) * len(models.x),), self.target, device=inputs.device)

        def descend(trigger: Tensor) -> tuple[Tensor, Tensor]:
            """The mean loss of the target over all models and examples, and its gradient."""
            with torch.enable_grad():
                trigger = trigger.detach().requires_grad_()
                outputs = models.outputs(self.stamp(inputs, trigger))  # [K, B, ...]
                loss = models.task.loss(outputs.flatten(0, 1), wanted).mean()
            return loss.detach(), torch.autograd.grad(loss, trigger)[0]

        best = trigger = state["trigger"]
        least, slope = descend(trigger)
        for _ in range(self.steps):
            trigger = (trigger - self.rate * (high - low) * slope.sign().nan_to_num()).clamp(low, high)
            loss, slope = descend(trigger)
            best, least = torch.where(loss < least, trigger, best), torch.minimum(loss, least)
        return {"trigger": best}

    def recall(self, ctx: Context, state: Tree, data: FederatedData, who: Tensor) -> FederatedData:
        return self.stamped(data, self.bears(ctx, data, who), state["trigger"])
