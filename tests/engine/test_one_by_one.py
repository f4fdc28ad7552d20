"""A compiled program of one client: the results of the plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import descant as dc
from descant.execution import Loop, tuning
from descant.execution.onebyone import OneByOne
from descant.execution.unrolled import together
from descant.methods import Ditto, FedAvg, LpProj, Method
from descant.task import Batch
from tests import held
from tests.interrupted import interrupt

pytestmark = pytest.mark.usefixtures("fresh_compiler", "avx512")


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in pairs, on whatever processor the test runs."""
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")


def network() -> dc.Task:
    torch.manual_seed(0)
    images = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 5, 2), nn.ReLU())
    return dc.Task(images.extend([nn.Flatten(), nn.Dropout(0.3), nn.Linear(20, 3)]).double())


def images(*sizes: int) -> dc.FederatedData:
    generator = torch.Generator().manual_seed(3)
    clients = [torch.randn(n, 2, 8, 8, generator=generator, dtype=torch.float64) for n in sizes]
    return dc.FederatedData.from_arrays([(x, (x[:, 0, 0, 0] > 0).long() + (x[:, 1, 0, 0] > 0)) for x in clients])


@pytest.mark.parametrize("laid_out", [True, False])
def test_gradients_and_predictions_are_those_of_the_loop(laid_out: bool) -> None:
    task, generator = network(), torch.Generator().manual_seed(1)
    x = task.start() + 0.1 * torch.randn(5, task.dim, generator=generator, dtype=torch.float64)
    inputs = torch.randn(5, 6, 2, 8, 8, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < 2 + torch.arange(5)[:, None]  # minibatches of 2 to 6 examples: the rest pads
    batch = Batch(inputs, torch.randint(0, 3, (5, 6), generator=generator), mask, torch.arange(5))
    none, everyone = torch.zeros(5, 0, dtype=torch.float64), torch.ones(5, dtype=torch.bool)
    alone = OneByOne(task, channels_last=laid_out)
    assert [type(module).__name__ for module in alone.task._training.modules()].count("_Pooled") == 1
    mine, its = (e.grads(x, none, batch, everyone, e.task.objective, ())[0] for e in (alone, Loop(task)))
    torch.testing.assert_close(mine, its, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(alone.outputs(x, none, inputs), Loop(task).outputs(x, none, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [FedAvg(epochs=2, batch=4), Ditto(steps=3, batch=5, solver=FedAvg(steps=2, batch=4)), LpProj(dim=4, steps=3)],
    ids=lambda method: method.name,
)
def test_runs_are_those_of_the_loop(method: Method) -> None:
    """With dropout, ragged clients, short minibatches, stragglers and changing cohorts."""
    data = images(9, 30, 14, 25, 12)
    settings: dict[str, Any] = {"rounds": 3, "cohort": 3, "stragglers": 0.4}
    looped = dc.simulate(network(), data, method, mode="loop", **settings)
    run = dc.simulate(network(), data, method, mode="compile", chunk=1, **settings)
    found = run.config["execution"]
    assert (found["mode"], found["clients_at_once"], found["fallbacks"]) == ("compile", 1, [])
    mine = held.everything(run)
    for name, leaf in held.everything(looped).items():
        assert torch.allclose(leaf, mine[name], rtol=0, atol=1e-12), name


@pytest.mark.slow
def test_two_programs_serve_all_clients() -> None:
    """One for the first step, where x is also a row that FedAvg's step takes, and one for all others."""
    data = images(9, 30, 14, 25, 12)
    dc.simulate(network(), data, FedAvg(epochs=2, batch=4), rounds=2, mode="compile", chunk=1, stragglers=0.4)
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2])
def test_dropout_draws_the_same_masks_in_compiled_programs(chunk: int) -> None:
    """The hash of their addresses overflows: a compiler must not take its words for numbers that do not."""
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 3)).double()
    data, method = images(9, 30, 14), FedAvg(steps=2, batch=4)
    looped = dc.simulate(dc.Task(model), data, method, rounds=1, mode="loop")
    run = dc.simulate(dc.Task(model), data, method, rounds=1, mode="compile", chunk=chunk)
    assert run.config["execution"]["fallbacks"] == []
    torch.testing.assert_close(held.shared(run), held.shared(looped), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_where_activations_are_equal_the_first_one_has_the_gradient() -> None:
    """All outputs of this convolution are 1 times the first channel, which is 1: the gradient of the second weight
    says which of them the pooling took."""
    layer = nn.Conv2d(2, 1, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 0.0]).view(1, 2, 1, 1))
    model = nn.Sequential(layer, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)).double()
    inputs = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs[:, 0] = 1.0
    data = dc.FederatedData.from_arrays([(inputs, torch.arange(6) % 3)])
    runs = [
        dc.simulate(dc.Task(model), data, FedAvg(steps=1, batch=None), rounds=1, mode=mode, chunk=1)
        for mode in ("compile", "loop")
    ]
    assert runs[0].config["execution"]["fallbacks"] == []
    torch.testing.assert_close(*map(held.shared, runs), rtol=0, atol=1e-14)


def test_with_batchnorm_vmap_runs_one_client_too() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 3)).double()
    run = dc.simulate(dc.Task(model), images(9, 6), FedAvg(steps=1, batch=4), rounds=1, mode="compile", chunk=1)
    assert run.config["execution"]["mode"] == "compile" and "BatchNorm" in run.config["execution"]["why"]


def test_steps_of_convolutions_do_not_come_together() -> None:
    assert together(OneByOne(network(), channels_last=True), torch.zeros(1, 1000), 10, steps=20) == 1


class Clock:
    """Times that are made up: a program of one client is the fastest, but for what is named otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 1e-3) -> None:
        self.measured: list[str] = []
        self.seconds = seconds
        monkeypatch.setattr(tuning, "_seconds_a_client", self)

    def __call__(self, execution: Any, *_: Any) -> float:
        alone = isinstance(execution, OneByOne)
        laid_out = getattr(execution, "channels_last", False)
        self.measured.append(ALONE if alone else "loop in channels_last" if laid_out else execution.mode)
        return self.seconds if isinstance(execution, OneByOne) else 2e-3


ALONE = "compile, one client at a time"
LONG: dict[str, Any] = {"rounds": 10**6, "trainers": 2, "chunk": None}


def chosen(data: dc.FederatedData, task: dc.Task | None = None, **how: Any) -> tuning.Prepared:
    return tuning.prepare(task or network(), data, FedAvg(steps=2, batch=4), "auto", **LONG | how)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESCANT_CACHE", str(tmp_path / "cache"))


def test_auto_takes_it_where_it_is_fastest_and_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    for _ in range(2):
        execution, at_once, why = chosen(images(9, 6))
        assert isinstance(execution, OneByOne) and at_once == 1 and f"{ALONE} 1e+03" in why
    assert clock.measured.count(ALONE) == 1


@pytest.mark.parametrize("how", [{"rounds": 1}, {"chunk": 2}], ids=["a short run", "two clients asked for"])
def test_auto_does_not_try_it_where_it_cannot_pay(monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    clock = Clock(monkeypatch)
    assert not isinstance(chosen(images(9, 6), **how).execution, OneByOne)
    assert clock.measured and ALONE not in clock.measured


def test_auto_does_not_take_it_for_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, seconds=1.9e-3)
    assert not isinstance(chosen(images(9, 6)).execution, OneByOne)
    assert ALONE in clock.measured


def test_auto_does_not_try_it_without_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    linear = dc.Task(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)).double())
    assert not isinstance(chosen(images(9, 6), linear).execution, OneByOne)
    assert clock.measured and ALONE not in clock.measured


class Viewing(nn.Module):
    """A model that calls `view` on what its convolution left, which images in channels_last refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.filters, self.head = nn.Conv2d(2, 4, 3), nn.Linear(144, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        left: torch.Tensor = self.head(self.filters(images).view(len(images), -1))
        return left


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"mode": "compile", "chunk": 1}, {"mode": "auto"}], ids=str)
def test_a_model_that_does_not_take_the_layout_runs_without_it(how: dict[str, Any]) -> None:
    def run(**how: Any) -> dc.Run:
        torch.manual_seed(2)
        return dc.simulate(dc.Task(Viewing().double()), images(9, 6), FedAvg(steps=2, batch=4), rounds=2, **how)

    ours, theirs = run(**how), run(mode="vmap")
    torch.testing.assert_close(held.shared(ours), held.shared(theirs), rtol=0, atol=1e-12)
    assert not ours.config["execution"]["fallbacks"]


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_it_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, data = Clock(monkeypatch), images(9, 30, 14)
    monkeypatch.setattr(tuning, "_WORTH", 0.0)
    settings: dict[str, Any] = {"rounds": 4, "cohort": 2, "commit": 1, "stragglers": 0.4}
    unbroken = dc.simulate(network(), data, FedAvg(epochs=1, batch=4), out=tmp_path / "unbroken", **settings)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(
            network(), data, FedAvg(epochs=1, batch=4), out=tmp_path / "run", progress=interrupt(2), **settings
        )
    clock.measured.clear()
    resumed = dc.resume(tmp_path / "run", network(), data)
    assert clock.measured == [], "what was chosen is kept"
    assert resumed.config["execution"] == unbroken.config["execution"]
    assert resumed.config["execution"]["mode"] == "compile" and ALONE in resumed.config["execution"]["why"]
    mine = held.everything(resumed)
    assert all(torch.equal(leaf, mine[name]) for name, leaf in held.everything(unbroken).items())
