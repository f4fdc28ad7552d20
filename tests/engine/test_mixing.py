"""A step of a user's own that mixes the clients of a batch is refused, and one that takes each by itself is not."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.errors import MixingWarning, SettingError
from descant.methods import Adam, FedAvg, Method, Until

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
MODES = ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)]


class Mine(FedAvg):
    name: ClassVar[str] = "mine"

    def client(self, down: Any, state: Any, local: Any) -> Any:
        w = down["w"]
        return self.message(local.run(self.step, w, w, work=self.work, role="shared") - w, local), state

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        raise NotImplementedError


class OneNorm(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g = grad(x)
        return x - g / g.norm()


class Mean(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return self.down(x, grad(x) + 0.1 * (x - x.mean(0)))


class ElseWhere(Mine):
    """It asks for its gradient at a mean; all clients start from the same model."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return self.down(x, grad(x.mean(0, keepdim=True).expand_as(x)))


class Standard(Mine):
    """The deviation of one client is not a number."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g = grad(x)
        return x - 0.1 * g / (g.std(0, keepdim=True) + 1e-3)


class OneRule(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g = grad(x)
        return Until(x - 0.1 * g / g.abs().max(), g.norm(dim=1) < 0)


class EachNorm(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g = grad(x)
        return x - g / g.norm(dim=1, keepdim=True)


class Twice(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return self.down(x, grad(x - 0.1 * grad(x)) + 0.1 * (x - w))


class InPlace(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g = grad(x)
        x.sub_(g, alpha=0.1)
        g.zero_()
        return x


class ByNumber(Mine):
    """Which step a number takes is by the client's own row."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return torch.where(w > x, x - 0.2 * grad(x), x - 0.1 * grad(x))


class Searching(Mine):
    """A line search, as long as any client needs one: every client's own step is its own."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        g, t = grad(x), torch.ones_like(x[:, :1])
        for _ in range(6):
            bad = (grad(x - t * g) * g).sum(1, keepdim=True) < 0.5 * (g * g).sum(1, keepdim=True)
            if not bad.any():
                break
            t = torch.where(bad, t / 2, t)
        return x - t * g


class Rotated(Mine):
    """Products with a matrix leave noise where a slope is zero, which Adam and signs make large."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        generator = torch.Generator(x.device).manual_seed(0)
        q, _ = torch.linalg.qr(torch.randn(x.shape[1], x.shape[1], generator=generator, dtype=x.dtype))
        g = grad(x)
        g = torch.cat([torch.zeros_like(g[:, :4]), g[:, 4:]], 1)
        return self.down(x, g @ q @ q.T)


class Bounded(Mine):
    """It holds for the models that a run visits alone, and for more than one client."""

    def step(self, x: Any, grad: Any, w: Any) -> Any:
        if len(x) < 2 or not bool(((x - w).abs() < 0.5).all()):
            raise ValueError("left the region")
        return x - 1e-3 * grad(x)


def run(method: Method, mode: Any = "vmap", **settings: Any) -> dc.Run:
    torch.manual_seed(0)  # for the model that the run starts from
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=2, mode=mode, **settings)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [OneNorm, Mean, ElseWhere, Standard, OneRule])
def test_a_step_that_mixes_clients_is_refused(kind: type[Mine], mode: str) -> None:
    said = rf"^the hook {kind.__name__}.step mixes clients: .* as in g.norm\(dim=1, keepdim=True\)"
    for method in (kind(steps=2), kind(steps=2, optimizer=Adam())):
        with pytest.raises(SettingError, match=said):
            run(method, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [EachNorm, Twice, InPlace, ByNumber, Searching, Rotated])
def test_a_step_that_takes_each_client_by_itself_is_not(kind: type[Mine], mode: str) -> None:
    found = run(kind(steps=2), mode)
    assert found.collapse is None
    assert run(kind(steps=2), mode, chunk=1).summary()["bytes_up"] == found.summary()["bytes_up"]


def test_a_step_that_fails_where_it_is_looked_at_alone_is_not_refused() -> None:
    assert run(Bounded(steps=2)).collapse is None
    with warnings.catch_warnings():  # Adam makes moves of rounding, which a client alone may have otherwise
        warnings.simplefilter("ignore", MixingWarning)
        assert run(Rotated(steps=2, optimizer=Adam())).collapse is None


@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_a_step_that_writes_in_place_writes_into_nothing_that_its_hook_holds(mode: str) -> None:
    """Neither into the w that `client` subtracts, nor, of a client alone, into that of the server."""
    others = {chunk: run(InPlace(steps=3), mode, chunk=chunk) for chunk in (None, 1, 2)}
    plain = run(FedAvg(lr=0.1, steps=3), mode).shared(round="last").weight
    for made in others.values():
        assert torch.allclose(made.shared(round="last").weight, plain, rtol=1e-5, atol=1e-7)


def test_looking_at_a_step_is_on_no_bill_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = run(Twice(steps=2))
    monkeypatch.setattr("descant.execution.chance.refuse_mixing", lambda *arguments: None)
    alone = run(Twice(steps=2))
    ours, theirs = (each.rounds.drop("seconds").to_dicts() for each in (looked, alone))
    assert ours == theirs
    assert torch.equal(looked.shared(round="last").weight, alone.shared(round="last").weight)


def test_one_client_is_mixed_with_nobody() -> None:
    run(OneNorm(steps=2), cohort=1)
