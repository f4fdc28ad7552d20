"""Runs of LSTM models: the same in every mode, in bfloat16 too, and evaluated in blocks that fit memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.engine import measure
from descant.execution import Compile, Execution, Loop, Vmap, tuning
from descant.execution.batches import Rows
from descant.execution.unrolled import together
from descant.models import lstm
from descant.task.recurrent import numbers_held
from tests import held

SIZES = (9, 7, 12, 5)


def federation(each: bool = True) -> dc.FederatedData:
    """Tokens [6] of four clients, of unequal sizes: minibatches are padded."""
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, 7, (n, 6), generator=generator) for n in SIZES]
    return dc.FederatedData.from_arrays([(x, x.roll(-1, 1) if each else x[:, 2]) for x in tokens], classes=7)


def task_of(data: dc.FederatedData, layers: int = 2, dtype: torch.dtype = torch.float64) -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(lstm(data, embedding=3, hidden=5, layers=layers).to(dtype))


def run(name: str, mode: str, **more: Any) -> dc.Run:
    method, data = dc.methods.METHODS[name](lr=0.2, steps=4, batch=6), federation()
    return dc.simulate(task_of(data), data, method, rounds=3, mode=mode, device="cpu", **more)


@pytest.mark.parametrize("mode", ["vmap", pytest.param("compile", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fedavg", "ditto", "hush"])
def test_a_run_is_that_of_the_loop(name: str, mode: str) -> None:
    ours, theirs = run(name, mode), run(name, "loop")
    assert ours.config["execution"]["mode"] == mode
    assert not ours.config["execution"]["fallbacks"]
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-10, atol=1e-12)
    loss = "personal.train_loss.mean@last"
    assert ours.summary()[loss] == pytest.approx(theirs.summary()[loss], rel=1e-10)


class Asking(nn.Module):
    """A model that tells its layers apart by their types, and lays out the weights of recurrent ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Embedding(7, 3), nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 7)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if isinstance(layer, nn.LSTM):
                layer.flatten_parameters()
                x, _ = layer(x)
            else:
                x = layer(x)
        return x[:, -1]


@pytest.mark.parametrize("mode", ["vmap", pytest.param("compile", marks=pytest.mark.slow)])
def test_a_model_may_ask_what_its_layers_are(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def flattened(layer: nn.RNNBase) -> None:  # as it does on a GPU
        looked_at.extend(p.data_ptr() for p in layer.parameters())

    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", flattened)
    torch.manual_seed(0)
    task, data = dc.Task(Asking().double()), federation(each=False)
    method, more = dc.methods.FedAvg(lr=0.2, steps=3, batch=6), {"rounds": 2, "device": "cpu"}
    theirs = dc.simulate(task, data, method, mode="loop", **more)
    assert looked_at
    ours = dc.simulate(task, data, method, mode=mode, **more)
    assert not ours.config["execution"]["fallbacks"]
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("each", [True, False])
def test_gradients_of_padded_minibatches(each: bool, layers: int) -> None:
    data = federation(each)
    task = task_of(data, layers)
    who, everyone = torch.arange(len(SIZES)), torch.ones(len(SIZES), dtype=torch.bool)
    batch = Rows(data.train, who).all(torch.zeros_like(who), max(SIZES))
    x = task.start() * torch.linspace(0.8, 1.2, len(SIZES), dtype=torch.float64)[:, None]
    given = (x, x.new_zeros(len(SIZES), 0), batch, everyone, task.objective, ())
    mine, its = Vmap(task).grads(*given)[0], Loop(task).grads(*given)[0]
    torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-12)


def test_bfloat16_is_as_exact_as_torchs_own() -> None:
    data = federation()
    task = task_of(data, dtype=torch.float32)
    who, everyone = torch.arange(len(SIZES)), torch.ones(len(SIZES), dtype=torch.bool)
    batch = Rows(data.train, who).all(torch.zeros_like(who), max(SIZES))
    x = task.start().repeat(len(SIZES), 1)

    def gradients(execution: Execution) -> Tensor:
        buffers = x.new_zeros(len(SIZES), 0)
        return execution.grads(x, buffers, batch, everyone, execution.task.objective, ())[0]

    exact = gradients(Loop(task))
    errors = [(gradients(way(task.in_half())) - exact).norm() / exact.norm() for way in (Loop, Vmap)]
    rounding = torch.finfo(torch.bfloat16).eps
    assert all(rounding / 100 < error < 2 * rounding for error in errors)


def test_numbers_that_a_model_holds_for_an_example() -> None:
    assert numbers_held(nn.Linear(3, 900), (2, 3)) == 6
    assert numbers_held(nn.LSTM(1, 50, batch_first=True), (80,)) == 80 * 50  # tokens
    assert numbers_held(nn.GRU(4, 50, bidirectional=True), (20, 4)) == 20 * 100  # vectors
    assert numbers_held(nn.LSTM(30, 2), (20, 30)) == 600


def test_blocks_of_an_evaluation_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation()
    task = task_of(data)
    x, rows = task.start().repeat(len(SIZES), 1), Rows(data.train, torch.arange(len(SIZES)))
    met: list[int] = []

    class Watched(Vmap):
        def outputs(self, x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
            met.append(inputs.shape[0] * inputs.shape[1])
            return super().outputs(x, buffers, inputs)

    def measured() -> tuple[Tensor, Tensor]:
        met.clear()
        return measure.measure(Watched(task), x, x.new_zeros(len(SIZES), 0), rows)

    whole = measured()
    assert met == [len(SIZES) * data.train.largest]
    monkeypatch.setattr(measure, "_BLOCK", 8 * 6 * 5)  # eight examples, with 6 states of 5 numbers
    torch.testing.assert_close(measured(), whole, rtol=1e-12, atol=1e-12)
    assert len(met) == -(-data.train.largest // 2)  # two of each client
    assert max(met) == 8


@pytest.mark.parametrize(("loop", "mode"), [(0.95, "loop"), (1.05, "vmap")])
def test_auto_takes_the_loop_where_that_is_faster(loop: float, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "recall", lambda key: None)
    monkeypatch.setattr(tuning, "remember", lambda *given: None)
    # Seconds so short that nothing is worth compiling.
    monkeypatch.setattr(
        tuning, "_seconds_a_client", lambda way, *given: 1e-9 * (loop if isinstance(way, Loop) else 1)
    )
    assert run("fedavg", "auto").config["execution"]["mode"] == mode


def test_steps_are_not_unrolled_in_compiled_programs() -> None:
    data, linear = federation(), dc.Task(nn.Linear(3, 2))
    task = task_of(data)
    assert together(Compile(task, 2), task.start().repeat(2, 1), 6, 20) == 1
    assert together(Compile(linear, 2), linear.start().repeat(2, 1), 6, 20) > 1
