"""A step of a user's own that takes or returns something else, or draws random numbers, is told what and where."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread
from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.errors import SettingError
from descant.execution import captured, chance
from descant.methods import Adam, Descent, FedAvg, Method, Until

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
MODES = ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)]


@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"


class NoReturn(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        self.down(x, grad(x))


class OneModel(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return (x - self.lr * grad(x))[0]  # torch would give it to all clients


class TooFew(Mine):
    def step(self, x: Any, grad: Any) -> Any:  # type: ignore[override]
        return self.down(x, grad(x))


class Turned(Mine):
    def step(self, grad: Any, x: Any, w: Any) -> Any:  # type: ignore[override]
        return self.down(x, grad(x))


class Longer(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return (x - self.lr * grad(x)).double()


class Uncalled(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return x - self.lr * grad


class Counts(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return Until(x - self.lr * grad(x), (x - w).norm(dim=1))


class Breaks(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return len(3) * x  # type: ignore[arg-type]


class Noisy(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return self.down(x, grad(x) + torch.randn_like(x))


class Drops(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return self.down(x, torch.nn.functional.dropout(grad(x)))


class Addressed(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        w = down["w"]
        noise = local.ctx.each(local.clients).normal("noise", w.shape[1:])
        return {"delta": local.run(self.noisy, w, noise, work=self.work, role="shared") - w}, state

    def noisy(self, x: Any, grad: Any, noise: Any) -> Any:
        return self.down(x, grad(x) + noise)


def run(method: Method, mode: Any = "vmap") -> torch.Tensor:
    task = dc.Task(torch.nn.Linear(4, 3))
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.zero_()
    shared = dc.simulate(task, DATA, method, rounds=2, mode=mode).shared(round="last")
    weight: torch.Tensor = shared.weight.detach()  # type: ignore[assignment]
    return weight


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            NoReturn,
            r"NoReturn.step returned nothing \(None\): it must return the next x, a tensor of shape \(3, 15\)$",
        ),
        (OneModel, r"OneModel.step returned a tensor of shape \(15,\): it must return the next x"),
        (TooFew, r"TooFew.step takes \(x, grad\) and was called with \(x, grad, row1\): let it"),
        (Turned, r"Turned.step takes \(grad, x, w\): x comes first, and then grad$"),
        (Longer, r"Longer.step returned a tensor .* in float64: it must return the next x in float32"),
        (Counts, r"Counts.step returned a tensor of shape \(3,\) as Until.met: .* \[K\] of bools, one a client"),
    ],
)
def test_a_step_that_takes_or_returns_something_else_is_named(kind: type[Descent], said: str, mode: str) -> None:
    for method in (kind(steps=2), kind(steps=2, optimizer=Adam())):
        with pytest.raises(SettingError, match=f"^the hook {said}"):
            run(method, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_not_called_is_told_from_a_tensor(mode: str) -> None:
    with pytest.raises(SettingError, match=r"^the grad that a step is handed is a function, .*: write grad\(x\)"):
        run(Uncalled(steps=2), mode)


def test_a_mistake_inside_a_step_stays_what_it_is() -> None:
    with pytest.raises(TypeError, match="has no len"):
        run(Breaks(steps=2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "operation"), [(Noisy, "randn_like"), (Drops, "bernoulli_")])
def test_a_step_that_draws_by_torch_is_refused(kind: type[Descent], operation: str, mode: str) -> None:
    said = rf"^the hook {kind.__name__}.step draws random numbers \(torch: {operation}\).* local.ctx.each"
    for method in (kind(steps=2), kind(steps=2, optimizer=Adam())):
        with pytest.raises(SettingError, match=said):
            run(method, mode)


def test_draws_by_address_may_be_handed_to_a_step_and_need_no_global_seed() -> None:
    torch.manual_seed(1)
    one = run(Addressed(steps=2))
    torch.manual_seed(2)
    assert torch.equal(run(Addressed(steps=2)), one) and not torch.equal(run(Mine(steps=2)), one)


def test_what_another_thread_draws_meanwhile_is_not_taken_for_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, looks = chance._refuse_draws, []

    def run_beside(*arguments: Any) -> Any:
        other = Thread(target=torch.randn, args=(1,))
        other.start()
        other.join()
        return captured.run(*arguments)

    def looked(*arguments: Any) -> None:
        looks.append(arguments[0])
        alone(*arguments)

    monkeypatch.setattr(chance, "run", run_beside)
    monkeypatch.setattr(chance, "_refuse_draws", looked)
    assert torch.isfinite(run(Mine(steps=2))).all()
    assert looks == ["Mine.step"]  # once a run
