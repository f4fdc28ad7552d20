"""A hook that draws by numpy or Python, or sets an attribute, is told so; what is called twice gives the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import torch

from descant.aggregators import Mean
from descant.errors import SettingError
from descant.methods import FedAvg, Method
from tests.engine.test_returned import Mine
from tests.engine.test_watching import ON_CLIENTS, ON_THE_SERVER, run


class NumpyClient(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, state = super().client(down, state, local)
        return message | {"delta": message["delta"] + np.random.randn()}, state


class NumpyServer(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        drawn = np.random.rand()
        return {"w": super().server(server, messages, aggregate)["w"] + drawn}


class PythonSilence(Mine):
    def silent(self, server: Any) -> Any:
        return random.random() < 0.5


class PythonStart(Mine):
    def server_start(self, ctx: Any) -> Any:
        return {"w": ctx.x0 + random.gauss(0, 1)}


class NumpyMean(Mean):
    def combine(self, ctx: Any, state: Any, mail: Any) -> Any:
        state, combined = super().combine(ctx, state, mail)
        return state, {name: leaf + np.random.randn() for name, leaf in combined.items()}


class NumpyStep(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return super().step(x + np.random.randn(), grad, w)


class PythonStep(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        return super().step(x * random.uniform(0.9, 1.1), grad, w)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests left behind draw nothing."""
    monkeypatch.setattr("descant.execution.chance._alone", lambda: True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("method", "hook", "by", "remedy"),
    [
        (NumpyClient(), "client", "numpy", ON_CLIENTS),
        (NumpyServer(), "server", "numpy", ON_THE_SERVER),
        (PythonSilence(), "silent", "Python's random", ON_THE_SERVER),
        (PythonStart(), "server_start", "Python's random", r" ctx.normal\('noise', \(d,\)\)"),
        (NumpyStep(), "step", "numpy", f"{ON_CLIENTS}, and hand them to local.run as a tensor after x"),
        (PythonStep(), "step", "Python's random", f"{ON_CLIENTS}, and hand them to local.run as a tensor after x"),
    ],
)
def test_a_hook_or_a_step_that_draws_by_numpy_or_python_is_refused(
    method: Method, hook: str, by: str, remedy: str
) -> None:
    said = rf"^the hook {type(method).__name__}.{hook} draws random numbers \({by}\).*{remedy}$"
    with pytest.raises(SettingError, match=said):
        run(method)


@pytest.mark.usefixtures("alone")
def test_an_aggregator_that_draws_by_numpy_is_named_and_not_the_method() -> None:
    with pytest.raises(SettingError, match=r"^the hook NumpyMean.combine draws random numbers \(numpy\)"):
        run(Mine(), aggregator=NumpyMean())


class OwnRandomness(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        drawn = np.random.default_rng(server.ctx.round).normal() + random.Random(server.ctx.round).random()
        return {"w": super().server(server, messages, aggregate)["w"] + drawn}


def test_numpys_and_pythons_generators_of_the_hooks_own_are_allowed() -> None:
    assert torch.equal(run(OwnRandomness()), run(OwnRandomness()))


def once(draw: Callable[[], Any]) -> Callable[[], None]:
    """What draws in another thread when it is called first."""
    left = [draw]

    def drawing() -> None:
        while left:
            other = Thread(target=left.pop())
            other.start()
            other.join()

    return drawing


@pytest.mark.parametrize("draw", [torch.randn, np.random.randn, random.random], ids=["torch", "numpy", "random"])
def test_a_suspected_hook_and_step_that_write_in_place_give_what_they_gave(draw: Any) -> None:
    draw = (lambda: torch.randn(1)) if draw is torch.randn else draw

    def in_place(of: dict[str, Callable[[], None]]) -> Any:
        def client(self: Any, down: Any, state: Any, local: Any) -> Any:
            of["client"]()
            w, row = down["w"].clone(), down["w"].clone()
            w = local.run(self.step, w, row, work=self.work, role="shared")
            state["v"] += 1
            return {"delta": w + row + state["v"], "n": local.n.int()}, state

        def server(self: Any, server: Any, messages: Any, aggregate: Any) -> Any:
            of["server"]()
            w = server["w"].clone()
            w += aggregate({"delta": messages["delta"] * 0.5})["delta"]
            return {**server, "w": w}

        def broadcast(self: Any, server: Any) -> Any:
            of["broadcast"]()
            w = server["w"].clone()
            w += 1
            return {"w": w}

        def step(self: Any, x: Any, grad: Any, w: Any) -> Any:
            of["step"]()
            w.add_(0.5)  # of every step after it, and of the hook client
            return FedAvg.step(self, x, grad, w)

        hooks = {"client": client, "server": server, "broadcast": broadcast, "step": step}
        start = {"client_start": lambda self, local: {"v": torch.ones(len(local.clients), 1)}}
        method: Method = type("InPlace", (Mine,), hooks | start)()
        return run(method)

    hooks = ("client", "server", "broadcast", "step")
    alone = in_place(dict.fromkeys(hooks, lambda: None))
    for hook in hooks:
        assert torch.equal(in_place(dict.fromkeys(hooks, lambda: None) | {hook: once(draw)}), alone), hook


@dataclass(frozen=True, kw_only=True)
class Setting(Mine):
    late: bool = False

    def client(self, down: Any, state: Any, local: Any) -> Any:
        if not self.late or local.round == 2:
            self.t = 1
        return super().client(down, state, local)


@dataclass(frozen=True, kw_only=True)
class SettingStep(Mine):
    def step(self, x: Any, grad: Any, w: Any) -> Any:
        self.t = 1
        return super().step(x, grad, w)


@dataclass(frozen=True, kw_only=True)
class SettingMean(Mean):
    def combine(self, ctx: Any, state: Any, mail: Any) -> Any:
        self.t = 1
        return super().combine(ctx, state, mail)


def test_a_hook_that_sets_an_attribute_is_told_where_to_keep_it() -> None:
    kept = "an object of a method never changes; keep it in the client's or the server's state$"
    for method in (Setting(), Setting(late=True)):
        with pytest.raises(SettingError, match=f"^Setting.client sets self.t: {kept}"):
            run(method)
    for mode in ("vmap", "loop"):
        with pytest.raises(SettingError, match=f"^SettingStep.step sets self.t: {kept}"):
            run(SettingStep(), mode=mode)
    with pytest.raises(SettingError, match=r"^SettingMean.combine sets self.t: .* the state that it is handed$"):
        run(Mine(), aggregator=SettingMean())


@pytest.mark.parametrize("draw", [np.random.randn, random.random], ids=["numpy", "random"])
def test_a_thread_that_goes_on_drawing_refuses_nobody(draw: Callable[[], Any]) -> None:
    """As the retries of a tracker do, though less often."""
    done = Event()

    def draws() -> None:
        while not done.wait(1e-5):
            draw()

    thread = Thread(target=draws)
    thread.start()
    try:
        for _ in range(3):
            run(FedAvg())
    finally:
        done.set()
        thread.join()
