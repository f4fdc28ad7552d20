"""LSTM layers on a GPU, where there is one: gradients as torch's own, runs as on the processor, steps captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import descant as dc
from descant.execution.device import computing
from descant.models import lstm
from descant.task.recurrent import vectorise
from tests import held

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]


def loss_of(layer: nn.Module) -> Any:
    def loss(values: dict[str, Tensor], inputs: Tensor) -> Tensor:
        outputs, (h, c) = functional_call(layer, values, (inputs,))
        return outputs.sin().sum() + (2 * h).cos().sum() + (c * c).sum()

    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(20, 20, 8, 256, 2), (3, 1, 5, 7, 3), (1, 4, 3, 33, 1)], ids=str)
def test_gradients_are_those_of_torchs_own_for_each_client(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    clients, batch, features, hidden, layers = sizes
    torch.manual_seed(0)
    layer = nn.LSTM(features, hidden, layers, batch_first=True).double()
    values = {name: p.detach() * (1 + 0.1 * torch.randn(clients, *p.shape)) for name, p in layer.named_parameters()}
    inputs = torch.randn(clients, batch, 12, features).double()
    alone = [grad(loss_of(layer))({n: v[k] for n, v in values.items()}, inputs[k]) for k in range(clients)]
    exact = {name: torch.stack([each[name] for each in alone]) for name in values}
    vectorise(layer)
    there = {name: value.to("cuda", dtype) for name, value in values.items()}
    with computing("cuda", "full"):
        found = [vmap(grad(loss_of(layer)))(there, inputs.to("cuda", dtype)) for _ in range(2)]
    for name, truth in exact.items():
        error = (found[0][name].cpu().double() - truth).norm() / truth.norm()
        assert error < 100 * torch.finfo(dtype).eps, name  # TF32 would be off by ten times as much
        assert found[0][name].equal(found[1][name])


def federation(each: bool) -> dc.FederatedData:
    generator = torch.Generator().manual_seed(3)
    clients = []
    for n in (9, 30, 14, 25, 11):
        tokens = torch.randint(0, 9, (n, 7), generator=generator)
        clients.append((tokens, tokens.roll(-1, 1) if each else tokens[:, 3]))
    return dc.FederatedData.from_arrays(clients, classes=9)


def run(method: Any, device: str, mode: str, each: bool = True) -> dc.Run:
    torch.manual_seed(0)
    data = federation(each)
    task = dc.Task(lstm(data, embedding=4, hidden=12).double())
    return dc.simulate(task, data, method, mode=mode, device=device, rounds=4, cohort=4)


@pytest.mark.parametrize("mode", ["vmap", "compile", "auto"])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("name", ["fedavg", "ditto", "hush"])
def test_a_run_is_that_of_the_processor(name: str, each: bool, mode: str) -> None:
    method = dc.methods.METHODS[name](lr=0.1, steps=5, batch=4)
    ours, theirs = run(method, "cuda", mode, each), run(method, "cpu", "loop", each)
    assert ours.config["execution"]["mode"] in ("vmap", "compile")
    assert not ours.config["execution"]["fallbacks"]  # its steps are captured
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-7, atol=1e-9)
