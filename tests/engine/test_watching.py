"""A hook of a user's own that draws random numbers without an address is told so, and how to draw them."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
import torch

import descant as dc
from descant.aggregators import Mean
from descant.errors import SettingError
from descant.methods import Method
from tests.engine.test_returned import DATA, Mine

ON_CLIENTS = r"local.ctx.each\(local.clients\).normal\('noise', \(d,\)\)"
ON_THE_SERVER = r"server.ctx.normal\('noise', \(d,\)\)"


class NoisyClient(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, state = super().client(down, state, local)
        return message | {"delta": message["delta"] + torch.randn_like(message["delta"])}, state


class NoisyServer(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        new = super().server(server, messages, aggregate)
        return {"w": new["w"] + torch.rand(new["w"].shape)}


class NoisyStart(Mine):
    def server_start(self, ctx: Any) -> Any:
        return {"w": torch.normal(ctx.x0, 1.0)}


class NoisyClientStart(Mine):
    def client_start(self, local: Any) -> Any:
        return {"v": self.drawn(local.start)}

    def drawn(self, like: Any) -> Any:
        return torch.randn(like.shape)


class NoisyBroadcast(Mine):
    def broadcast(self, server: Any) -> Any:
        return {"w": torch.nn.functional.dropout(server["w"])}


class NoisyPersonal(Mine):
    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return down["w"][:, torch.randperm(down["w"].shape[1])]


class NoisyShared(Mine):
    def shared(self, server: Any) -> Any:
        return server["w"] + torch.randn(1)


class NoisyCohort(Mine):
    def cohort_weights(self, server: Any) -> Any:
        return torch.rand(3)


class NoisySilence(Mine):
    def silent(self, server: Any) -> Any:
        return bool(torch.rand(()) < 0.5)


class NoisyReply(Mine):
    def reply(self, server: Any) -> Any:
        return {"w": torch.randn_like(server["w"])}


class NoisyFetch(Mine):
    def fetches(self, down: Any, state: Any, local: Any) -> Any:
        return {"w": torch.randint(5, (len(local.n),))}


class NoisyJudged(Mine):
    def judged(self, down: Any, state: Any, local: Any) -> Any:
        return torch.randn_like(down["w"])


class NoisyStatic(Mine):
    @staticmethod
    def personal(down: Any, state: Any, local: Any) -> Any:  # type: ignore[override]
        return torch.randn_like(down["w"])


class NoisyOtherwise(Mine):
    def personal(me, down: Any, state: Any, local: Any) -> Any:  # type: ignore[override]  # noqa: N805
        return torch.randn_like(down["w"])


class NoisyMean(Mean):
    def combine(self, ctx: Any, state: Any, mail: Any) -> Any:
        state, combined = super().combine(ctx, state, mail)
        return state, {name: leaf + torch.randn_like(leaf) for name, leaf in combined.items()}


def run(method: Method, **settings: Any) -> torch.Tensor:
    task = dc.Task(torch.nn.Linear(4, 3))
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.zero_()
    settings = {"mode": "vmap", "rounds": 2, **settings}
    weight: Any = dc.simulate(task, DATA, method, **settings).shared(round="last").weight
    found: torch.Tensor = weight.detach()
    return found


@pytest.mark.parametrize(
    ("method", "hook", "operation", "remedy"),
    [
        (NoisyClient(), "client", "randn_like", ON_CLIENTS),
        (NoisyServer(), "server", "rand", ON_THE_SERVER),
        (NoisyStart(), "server_start", "normal", r" ctx.normal\('noise', \(d,\)\)"),
        (NoisyClientStart(), "drawn", "randn", ON_CLIENTS),
        (NoisyBroadcast(), "broadcast", "bernoulli_", ON_THE_SERVER),
        (NoisyPersonal(), "personal", "randperm", ON_CLIENTS),
        (NoisyShared(), "shared", "randn", ON_THE_SERVER),
        (NoisyCohort(), "cohort_weights", "rand", ON_THE_SERVER),
        (NoisySilence(), "silent", "rand", ON_THE_SERVER),
        (NoisyReply(), "reply", "randn_like", ON_THE_SERVER),
        (NoisyFetch(), "fetches", "randint", ON_CLIENTS),
        (NoisyJudged(), "judged", "randn_like", ON_CLIENTS),
        (NoisyStatic(), "personal", "randn_like", ON_CLIENTS),
        (NoisyOtherwise(), "personal", "randn_like", ON_CLIENTS),
    ],
)
def test_a_hook_that_draws_by_torch_is_refused(method: Method, hook: str, operation: str, remedy: str) -> None:
    said = rf"^the hook {type(method).__name__}.{hook} draws random numbers \(torch: {operation}\).*{remedy}$"
    asks = {"aggregator": {"name": "k-loss", "k": 1}} if hook == "judged" else {}  # for losses
    with pytest.raises(SettingError, match=said):
        run(method, **asks)


def test_an_aggregator_that_draws_by_torch_is_named_and_not_the_method() -> None:
    with pytest.raises(
        SettingError, match=r"^the hook NoisyMean.combine draws random numbers \(torch: randn_like\)"
    ):
        run(Mine(), aggregator=NoisyMean())


class OwnGenerator(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        new = super().server(server, messages, aggregate)
        by = torch.Generator().manual_seed(server.ctx.round)
        return {"w": new["w"] + torch.randn(new["w"].shape, generator=by)}


def test_a_generator_of_the_hooks_own_draws_the_same_in_every_order_and_is_allowed() -> None:
    assert torch.equal(run(OwnGenerator()), run(OwnGenerator()))


class Addressed(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, state = super().client(down, state, local)
        noise = local.ctx.each(local.clients).normal("noise", (down["w"].shape[1],))
        return message | {"delta": message["delta"] + noise}, state


def test_draws_by_address_and_starts_of_clients_own_are_allowed() -> None:
    assert torch.isfinite(run(Addressed())).all()
    assert torch.isfinite(run(dc.methods.Ditto(), own_start=True)).all()


class Beside(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        drawn_beside()
        return super().client(down, state, local)

    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        drawn_beside()
        return super().server(server, messages, aggregate)


def drawn_beside() -> None:
    other = Thread(target=torch.randn, args=(1,))
    other.start()
    other.join()


def test_what_another_thread_draws_meanwhile_changes_nothing() -> None:
    task = dc.Task(torch.nn.Linear(4, 3))
    clipped = {"aggregator": "centered-clipping", "rounds": 2, "mode": "vmap"}
    alone, beside = (dc.simulate(task, DATA, method, **clipped) for method in (Mine(), Beside()))
    one, other = alone.shared(round="last").weight, beside.shared(round="last").weight
    assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    assert alone.rounds.drop("seconds", strict=False).equals(beside.rounds.drop("seconds", strict=False))
