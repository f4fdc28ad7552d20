"""Defences that change the messages before they are combined, and several of them in a row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from descant.aggregators.base import Aggregator, RecordFigure, unheard
from descant.aggregators.mean import Mean
from descant.context import Context
from descant.coupling.distances import finite_rows
from descant.errors import SettingError, require
from descant.mail import Mail
from descant.trees import Tree, under, within


@dataclass(frozen=True, kw_only=True)
class Before(Aggregator):
    """What is done to the messages before another aggregator combines them; alone, their mean follows."""

    @abstractmethod
    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        """The messages that are combined in the place of these."""

    def left(self, messages: int) -> int:
        """How many messages it makes of so many."""
        return messages

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        prepared = self.prepare(ctx, mail)
        return state, Mean()(prepared.leaves, prepared.weights)

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> Tree:
        raise SettingError(f"the aggregator '{self.name}' prepares mail: call its `combine` or `prepare`")


@dataclass(frozen=True, kw_only=True)
class Chain(Aggregator):
    """Aggregators in a row: all but the last prepare the messages, and the last combines them."""

    name: ClassVar[str] = "chain"

    steps: tuple[Aggregator, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "steps", len(self.steps) > 0, "at least one aggregator")
        for step in self.steps[:-1]:
            before = isinstance(step, Before)
            require(self, "steps", before, f"aggregators that prepare messages before the last: not '{step.name}'")

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]  # a class has its own; a chain what its steps have
        return tuple(dict.fromkeys(fact for step in self.steps for fact in step.reads))

    @property
    def weighs(self) -> bool:  # type: ignore[override]  # likewise
        return all(step.weighs for step in self.steps)

    @property
    def updates(self) -> bool:  # type: ignore[override]  # likewise
        return any(step.updates for step in self.steps)

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # likewise
        return any(step.remembers for step in self.steps)

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        *first, last = self.steps
        for step in first:
            assert isinstance(step, Before)
            mail = step.prepare(ctx, mail)
        memory, combined = last.combine(ctx, within("last", state), mail)
        return under("last", memory), combined

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> Tree:
        raise SettingError("aggregators in a row combine mail: call `combine`")


def rows_of(leaf: Tensor) -> Tensor:
    """A leaf [S, ...] as rows [S, d]."""
    return leaf.reshape(len(leaf), -1)


def scaled(leaf: Tensor, factor: Tensor) -> Tensor:
    """The rows of a leaf [S, ...], each times its factor [S]; a row times 0 is 0, whatever it was."""
    found = leaf * factor.to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1))
    found[factor == 0] = 0
    return found


def mixed(mail: Mail, mix: Callable[[Tensor], Tensor], places: Tensor) -> Mail:
    """Messages [B] in the place of these, made by `mix` of their leaves [S, ...].

    A mixture stands for the sender at one of the `places` [B]. What senders claim to weigh is dropped: nobody knows
    what a mixture weighs.
    """
    leaves = {name: mix(leaf) for name, leaf in mail.items()}
    references = {n: r if len(r) == 1 else mix(r) for n, r in mail.references.items()}
    at = {name: fact[places] for name, fact in mail.facts.items()}
    return replace(
        mail,
        leaves=leaves,
        references=references,
        clients=mail.clients[places],
        started=mail.started[places],
        weights=None,
        facts=at,
    )


def times(weights: Tensor, leaf: Tensor) -> Tensor:
    """Sums of the rows of a leaf [S, ...] with weights [B, S]; one of weight 0 does not count, whatever it is."""
    p = weights.to(leaf.dtype if leaf.is_floating_point() else torch.float64)
    rows = rows_of(leaf).to(p.dtype)
    bad = ~finite_rows(rows)  # zero times infinity would be no number
    if bool(bad.any()):
        rows = rows.masked_fill(bad[:, None], 0)
    product = p @ rows
    product[(p[:, bad] != 0).any(1)] = torch.nan
    return product.view(len(weights), *leaf.shape[1:]).to(leaf.dtype)
