"""Which models are looked at, on which data and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from descant.context import Context
from descant.data import Part
from descant.engine.ledger import KINDS, Ledger
from descant.engine.measure import measure, obeyed
from descant.engine.records import Account, Evaluated
from descant.errors import require
from descant.execution.batches import Rows
from descant.fields import Checked
from descant.mirrors import parts

if TYPE_CHECKING:
    from descant.engine.clients import Clients
    from descant.engine.newcomers import Newcomers
    from descant.engine.server import Server
    from descant.methods import Method

Model = Literal["personal", "shared", "selected"]
MODELS = ("personal", "shared", "selected")
PARTS = ("train", "valid", "test")
_THREE = "all three where one is to be 'selected': personal, shared and selected"


@dataclass(frozen=True, kw_only=True)
class Evaluation(Checked):
    """What to evaluate: after `every` that many rounds (and before the first, and after the last), on `parts`.

    `models` are "personal", what a client deploys, and "shared", the global model where the method has one of its
    own. Losses are the task's, without any penalty. "selected" is the better of these two on the client's own
    validation data, and needs them: the metric decides, between equals the loss, and without validation data it is
    the personal one. A method with one model has nothing to select.
    """

    every: int = 1
    parts: tuple[str, ...] = PARTS
    models: tuple[Model, ...] = ("personal", "shared")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "every", self.every >= 1, "a positive number of rounds")
        for field, known in (("parts", PARTS), ("models", MODELS)):
            asked = getattr(self, field)
            require(self, field, len(asked) > 0 and set(asked) <= set(known), f"some of {known}")
            require(self, field, len(set(asked)) == len(asked), f"some of {known}, each once")
        if "selected" in self.models:
            require(self, "models", set(self.models) == set(MODELS), _THREE)
            require(self, "parts", "valid" in self.parts, "parts with 'valid' where a model is to be 'selected'")

    def due(self, round: int, rounds: int) -> bool:
        return round % self.every == 0 or round == rounds


class Sees(Protocol):
    """Is shown the models that are evaluated in a round, of the clients `who` [K] at a time.

    x is [K, d] and `statistics` [K, b]. They are shown before their figures are known.
    """

    def __call__(self, round: int, model: str, who: Tensor, x: Tensor, statistics: Tensor) -> None: ...


def evaluate(
    ctx: Context,
    clients: Clients,
    server: Server,
    at_once: int,
    newcomers: Newcomers | None = None,
    sees: Sees | None = None,
    probe: Callable[[Part], Part | None] | None = None,
) -> Iterator[Evaluated | Account]:
    """Loss and metric of every client's models on each part, as the run's `Evaluation` asks; last the accounts.

    The newcomers' come after those of the others, and are shown to nobody. `probe` makes of a part's examples those
    that attackers want to be answered as they say (a backdoor), if they want any; on test data it is told how many
    are.
    """
    wanted, method = clients.plan.evaluation, clients.method
    groups = [clients]
    if newcomers is not None:
        newcomers.arrive(server)
        groups.append(newcomers)
    for group in groups:
        group.deploying = Ledger(len(group.data))
    benign = ~torch.isin(clients.here, clients.plan.malicious.to(clients.here.device))
    counted = torch.cat([benign, *(torch.zeros_like(group.here, dtype=torch.bool) for group in groups[1:])])
    evaluated: dict[str, Evaluated] = {}
    looked_at = evaluated_models(wanted, method)
    for model in looked_at:
        if model == "selected":
            continue
        found: dict[str, list[tuple[Tensor, Tensor]]] = {part: [] for part in wanted.parts}
        wants = {group: probe(group.data.test) if probe and "test" in found else None for group in groups}
        answered: list[Tensor] = []
        models = [(group, models_of(ctx, group, server, model, group.here, at_once)) for group in groups]
        for group, who, x, buffers in ((group, *some) for group, chunks in models for some in chunks):
            if sees is not None and group is clients:
                sees(ctx.round, model, who, x, buffers)
                if model == "personal" and method.has_shared and not method.personalizes:
                    for some in models_of(ctx, clients, server, "shared", who, len(who)):
                        sees(ctx.round, "shared", *some)
            for part, blocks in found.items():
                rows = Rows(group.data.part(part), who, group.data.places(who))
                blocks.append(measure(clients.execution, x, buffers, rows))
            if (wanted_of := wants[group]) is not None:
                answered.append(obeyed(clients.execution, x, buffers, Rows(wanted_of, who, group.data.places(who))))
        loss = {part: torch.cat([block[0] for block in blocks]) for part, blocks in found.items()}
        metric = {part: torch.cat([block[1] for block in blocks]) for part, blocks in found.items()}
        success = {"test": torch.cat(answered)} if answered else {}
        evaluated[model] = Evaluated(ctx.round, model, loss, metric, counted, success)
        yield evaluated[model]
    if "selected" in looked_at:
        yield select(evaluated["personal"], evaluated["shared"], clients.task.metric.higher_is_better)
    yield account(ctx.round, groups)


def evaluated_models(wanted: Evaluation, method: Method) -> list[Model]:
    """The models of a method that are evaluated, of those that are asked for; the selected one last.

    A shared model that is what clients deploy is looked at once, as the personal one.
    """
    once = not method.personalizes and "personal" in wanted.models
    held = {"personal": True, "shared": method.has_shared and not once}
    found: list[Model] = [model for model in wanted.models if held.get(model, False)]
    return [*found, "selected"] if "selected" in wanted.models and len(found) == 2 else found


def account(round: int, groups: Sequence[Clients]) -> Account:
    """What some groups of clients have spent so far, and what making the models that were evaluated took."""
    spent = {kind: torch.cat([group.ledger.spent[kind] for group in groups]) for kind in KINDS}
    now = {kind: torch.cat([group.deploying.spent[kind] for group in groups]) for kind in ("gradients", "examples")}
    return Account(round, **spent, **{f"evaluation_{kind}": amounts for kind, amounts in now.items()})


def models_of(
    ctx: Context, clients: Clients, server: Server, model: Model, who: Tensor, at_once: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The clients `who`, so many at once, with their models [K, d], personal or shared, and statistics [K, b]."""
    down = server.told(ctx)
    for some in parts(who, at_once):
        if model == "personal":
            yield some, *clients.personal(ctx, some, down)
            continue
        x, buffers = (row.expand(len(some), -1) for row in server.shared(ctx))
        if clients.task.buffers == "local":  # every client predicts with its own running statistics
            buffers = clients.statistics(ctx, some, down)
        yield some, x, buffers


def takes_shared(personal: Evaluated, shared: Evaluated, higher_is_better: bool) -> Tensor:
    """Whether [N] the shared model is the better of a client's two on its validation data."""
    ours, theirs = personal.metric["valid"], shared.metric["valid"]  # [N]; NaN, which is never better, without data
    better = theirs > ours if higher_is_better else theirs < ours
    return better | ((theirs == ours) & (shared.loss["valid"] < personal.loss["valid"]))


def select(personal: Evaluated, shared: Evaluated, higher_is_better: bool) -> Evaluated:
    """The better of each client's two models on its validation data, as both were evaluated."""
    takes = takes_shared(personal, shared, higher_is_better)

    def of(own: dict[str, Tensor], common: dict[str, Tensor]) -> dict[str, Tensor]:
        return {part: torch.where(takes, common[part], own[part]) for part in own}

    figures = (of(personal.loss, shared.loss), of(personal.metric, shared.metric))
    success = of(personal.success, shared.success)
    return Evaluated(personal.round, "selected", *figures, personal.counted, success)
