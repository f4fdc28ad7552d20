"""Recurrent models: vmap runs LSTM layers. The probe finds that it cannot run others, and the loop trains them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.errors import TaskError
from descant.execution import Execution, Loop, Vmap, choose
from descant.task import Task

Helper = Callable[..., Any]


class Reader(nn.Module):
    """A classifier of short texts: embedding, recurrent layer, linear layer on the last state."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.read = kind(4, 5, batch_first=True)
        self.score = nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.score(self.read(self.embed(tokens))[0][:, -1])
        return scores


def texts(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 11, (n, 6), generator=g), torch.randint(0, 3, (n,), generator=g)


def test_the_probe_takes_vmap_for_lstm_layers() -> None:
    execution, why = choose(Task(Reader()), *texts(3, 0))
    assert isinstance(execution, Vmap)
    assert why == "vectorises"


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU])
def test_the_probe_takes_the_loop_for_others_and_says_why(kind: type[nn.RNNBase]) -> None:
    execution, why = choose(Task(Reader(kind)), *texts(3, 0))
    assert isinstance(execution, Loop)
    assert why.startswith("vmap cannot run this model: ")
    assert "batching rule" in why.lower()


def test_vmap_is_refused_where_it_was_asked_for() -> None:
    with pytest.raises(TaskError, match=r"does not run under vmap \(.+\): use mode='auto' or 'loop'"):
        choose(Task(Reader(nn.GRU)), *texts(3, 0), mode="vmap")


@pytest.mark.parametrize("way", [Loop, Vmap])
def test_gradients_are_those_of_plain_autograd(
    way: type[Execution], padded: Helper, plain: Helper, grads: Helper, around: Helper
) -> None:
    torch.manual_seed(0)
    task = Task(Reader().double())
    clients = [texts(n, n) for n in (5, 3, 1)]
    x = around(task.start(), 3)
    gradients, _ = grads(way(task), x, padded(clients))
    for k, examples in enumerate(clients):
        expected, _ = plain(task.model, x[k], examples)
        torch.testing.assert_close(gradients[k], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_a_run_of_fedavg_is_plain_torch_and_an_average(mode: str) -> None:
    torch.manual_seed(0)
    model = Reader().double()
    sizes = (8, 5, 3)
    clients = [texts(n, n) for n in sizes]
    data = dc.FederatedData.from_arrays([{"train": pair, "test": texts(4, 9)} for pair in clients], classes=3)
    method = dc.methods.FedAvg(lr=0.5, steps=2, batch=None)
    run = dc.simulate(Task(model), data, method, rounds=2, mode=mode)  # type: ignore[arg-type]
    assert run.config["execution"]["mode"] == mode

    shared = deepcopy(model)
    for _ in range(2):
        trained = []
        for inputs, targets in clients:
            own = deepcopy(shared)
            optimizer = torch.optim.SGD(own.parameters(), lr=0.5)
            for _ in range(2):
                optimizer.zero_grad()
                functional.cross_entropy(own(inputs), targets).backward()
                optimizer.step()
            trained.append(nn.utils.parameters_to_vector(own.parameters()).detach())
        mean = sum(n * x for n, x in zip(sizes, trained, strict=True)) / sum(sizes)
        nn.utils.vector_to_parameters(mean, shared.parameters())
    torch.testing.assert_close(run.shared(round="last").state_dict(), shared.state_dict(), rtol=1e-9, atol=1e-11)
    hits = (shared(texts(4, 9)[0]).argmax(1) == texts(4, 9)[1]).double().mean()
    assert run.summary()["personal.test_accuracy.mean@last"] == pytest.approx(float(hits))
