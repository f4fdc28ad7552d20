"""A hook that mixes the clients of a batch is told, and one that makes every row by itself is not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch

import descant as dc
from descant.errors import MixingWarning
from descant.kinds import CATALOG
from descant.methods import Ditto, FedAvg, Method

DATA = dc.FederatedData.from_arrays([(torch.randn(8 + 4 * k, 4), torch.arange(8 + 4 * k) % 3) for k in range(4)])


class Mine(FedAvg):
    name: ClassVar[str] = "mine"

    def client(self, down: Any, state: Any, local: Any) -> Any:
        w = down["w"]
        x = local.run(self.step, w, w, work=self.work, role="shared")
        return {"delta": self.sent(x - w, local), "n": local.n.to(torch.int32)}, state

    def sent(self, delta: Any, local: Any) -> Any:
        return delta


class OneNorm(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta * min(1.0, 0.05 / float(delta.norm()))


class Mean(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta.mean(0).expand_as(delta)


class Shares(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta * (local.n / local.n.sum())[:, None]


class ByPlace(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta * torch.arange(1, len(delta) + 1)[:, None]


class ByNumber(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta / len(delta)


class Deployed(Mine):
    personalizes: ClassVar[bool] = True

    def client_start(self, local: Any) -> Any:
        return {"v": local.start + local.clients[:, None]}

    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return state["v"].mean(0).expand_as(state["v"])


class Begun(Deployed):
    def client_start(self, local: Any) -> Any:
        return {"v": local.start + local.n[:, None] - local.n.min()}

    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return state["v"]


class EachNorm(Mine):
    def sent(self, delta: Any, local: Any) -> Any:
        return delta * (0.05 / delta.norm(dim=1, keepdim=True)).clamp(max=1)


class Failing(Mine):
    """What needs several clients is no method for a network; but the run goes on."""

    def sent(self, delta: Any, local: Any) -> Any:
        if len(delta) < 2:
            raise ValueError("too few")
        return delta


def run(method: Method, mode: Any = "vmap", **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    task = dc.Task(torch.nn.Linear(4, 3))
    return dc.simulate(task, DATA, method, rounds=2, seed=1, mode=mode, **settings)


@contextmanager
def silence() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MixingWarning)
        yield


@pytest.mark.parametrize("mode", ["loop", "vmap"])
@pytest.mark.parametrize("kind", [OneNorm, Mean, Shares, ByPlace, ByNumber])
def test_a_client_hook_that_mixes_clients_is_told(kind: Any, mode: str) -> None:
    said = rf"the hook {kind.__name__}.client makes something else of a client beside 3 others .* \('delta', by"
    with pytest.warns(MixingWarning, match=said) as told:
        run(kind(lr=0.1, steps=3), mode)
    assert len([each for each in told if each.category is MixingWarning]) == 1  # not in every round anew


@pytest.mark.parametrize(
    ("kind", "hook", "leaf"), [(Deployed, "personal", "the model"), (Begun, "client_start", "'v'")]
)
def test_a_hook_that_mixes_what_clients_deploy_or_begin_with_is_told(kind: Any, hook: str, leaf: str) -> None:
    with warnings.catch_warnings(record=True) as told:  # what began otherwise is deployed otherwise, too
        warnings.simplefilter("always")
        run(kind(lr=0.1, steps=3))
    said = [str(each.message) for each in told]
    assert any(one.startswith(f"the hook {kind.__name__}.{hook} makes") and f"({leaf}, by" in one for one in said)


@pytest.mark.parametrize("kind", [Mine, EachNorm, Failing])
@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_hooks_that_make_every_row_by_itself_are_not(kind: Any, mode: str) -> None:
    with silence():
        run(kind(lr=0.1, steps=3), mode)


def test_the_call_on_one_client_leaves_no_trace() -> None:
    plain, looked_at = run(FedAvg(lr=0.1, steps=3)), run(Mine(lr=0.1, steps=3))
    assert torch.equal(*(done.shared().weight for done in (plain, looked_at)))
    assert plain.history.rounds[0]["gradients"] == looked_at.history.rounds[0]["gradients"]


class Writing(Mine):
    """It writes into what is the server's where a client is alone."""

    def client(self, down: Any, state: Any, local: Any) -> Any:
        w = down["w"].contiguous()
        w *= 0.9
        return super().client({**down, "w": w}, state, local)

    def client_start(self, local: Any) -> Any:
        v = local.start.contiguous()
        v += 1
        return {"v": v}


def test_what_a_hook_writes_into_for_one_client_is_its_own() -> None:
    """Neither the look at one client nor a chunk of one changes the server's model, or where all start from."""
    looked_at, alone = (run(Writing(lr=0.1, steps=3), chunk=chunk) for chunk in (None, 1))
    with mock.patch("descant.engine.byitself.ByItself.look", lambda *_: None):
        plain = run(Writing(lr=0.1, steps=3))
    last = plain.shared(round="last").weight
    assert torch.equal(looked_at.shared(round="last").weight, last)
    assert torch.allclose(alone.shared(round="last").weight, last, rtol=1e-5, atol=1e-6)


def test_a_solver_of_ones_own_is_looked_at_too() -> None:
    with pytest.warns(MixingWarning, match=r"the hook Ditto.client makes something else of a client"):
        run(Ditto(solver=OneNorm(lr=0.1, steps=3)))


def test_a_client_that_works_alone_has_nothing_to_be_held_against() -> None:
    with silence():
        run(OneNorm(lr=0.1, steps=3), chunk=1)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", sorted(CATALOG["methods"].keys() - {"mocha"}))  # which wants features
def test_no_method_of_descant_would_be_told(name: str) -> None:
    """As if it were a user's own."""
    with silence(), mock.patch("descant.engine.byitself.has_users", lambda method: True):
        run(CATALOG["methods"][name]())
