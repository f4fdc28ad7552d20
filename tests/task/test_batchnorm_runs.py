"""Running statistics in whole runs: averaged and billed, or kept; one set for every model that is trained."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.errors import TaskError
from descant.task import Task

SIZES = (7, 10, 6)  # no minibatch of four leaves a single example over
Statistics = dict[str, Tensor]


def model(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)


def data(sizes: tuple[int, ...] = SIZES) -> dc.FederatedData:
    g = torch.Generator().manual_seed(1)
    clients = []
    for k, n in enumerate(sizes):
        parts = {
            part: (torch.randn(m, 4, generator=g) + k, torch.arange(m) % 3)
            for part, m in (("train", n), ("test", 5))
        }
        clients.append(parts)
    return dc.FederatedData.from_arrays(clients, classes=3)  # fmt: skip


def statistics(module: nn.Module) -> Statistics:
    return {name: buffer for name, buffer in module.named_buffers() if "running" in name}


def trained(start: nn.Module, examples: tuple[Tensor, Tensor], steps: int, lr: float) -> nn.Module:
    """Full-batch gradient descent in plain torch."""
    own = deepcopy(start).train()
    optimizer = torch.optim.SGD(own.parameters(), lr=lr)
    inputs = examples[0].to(next(own.parameters()).dtype)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(own(inputs), examples[1]).backward()
        optimizer.step()
    return own.eval()


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


FULL = {"lr": 0.2, "steps": 3, "batch": None}


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("weighted", [True, False])
def test_shared_statistics_are_averaged_with_the_model(mode: Any, weighted: bool) -> None:
    federation, shared = data(), model()
    run = dc.simulate(Task(shared), federation, dc.methods.FedAvg(weighted=weighted, **FULL), rounds=2, mode=mode)
    weights = [n / sum(SIZES) if weighted else 1 / 3 for n in SIZES]
    for _ in range(2):
        clients = [trained(shared, federation.train.client(k), 3, 0.2).state_dict() for k in range(3)]
        counters = [name for name in clients[0] if "num_batches" in name]
        mean = {
            n: sum(p * c[n] for p, c in zip(weights, clients, strict=True)) for n in clients[0] if n not in counters
        }
        shared.load_state_dict(mean | {name: torch.tensor(0) for name in counters})
    for module in (run.shared(round="last"), run.personal(0, round="last"), run.personal(2, round="last")):
        close(statistics(module), statistics(shared))
        close(dict(module.named_parameters()), dict(shared.named_parameters()))
    hits = [
        (run.shared(round="last")(x.double()).argmax(1) == y).double().mean()
        for x, y in map(federation.test.client, range(3))
    ]
    assert run.summary()["personal.test_accuracy.mean@last"] == pytest.approx(float(sum(hits)) / 3)


def test_shared_statistics_are_billed_by_the_float() -> None:
    task = Task(model(torch.float32))
    d, b = 4 * 6 + 6 + 12 + 18 + 3, 12
    assert (task.dim, task.buffer_layout.dim) == (d, b)
    (row,) = dc.simulate(task, data(), dc.methods.FedAvg(), rounds=1).rounds.to_dicts()
    assert row["bytes_up"] == 3 * (4 * d + 4 * b + 4)  # and the int32 n_k
    assert row["bytes_down"] == 3 * (4 * d + 4 * b)
    local = Task(model(torch.float32), buffers="local")
    (row,) = dc.simulate(local, data(), dc.methods.FedAvg(), rounds=1).rounds.to_dicts()
    assert row["bytes_up"] == 3 * (4 * d + 4)
    assert row["bytes_down"] == 3 * 4 * d


def test_local_statistics_stay_with_their_client() -> None:
    federation, start = data(), model()
    run = dc.simulate(Task(start, buffers="local"), federation, dc.methods.FedAvg(weighted=False, **FULL), rounds=2)
    own, w = [statistics(start)] * 3, deepcopy(start)
    for _ in range(2):
        clients = []
        for k in range(3):
            w.load_state_dict(own[k], strict=False)
            clients.append(trained(w, federation.train.client(k), 3, 0.2))
        own = [statistics(client) for client in clients]
        vectors = [nn.utils.parameters_to_vector(client.parameters()).detach() for client in clients]
        nn.utils.vector_to_parameters(sum(vectors) / 3, w.parameters())  # type: ignore[arg-type]
    for k in range(3):
        close(statistics(run.personal(k, round="last")), own[k])
        close(dict(run.personal(k, round="last").named_parameters()), dict(w.named_parameters()))
    assert not torch.isclose(own[0]["1.running_mean"], own[1]["1.running_mean"]).any()


@pytest.mark.slow
@pytest.mark.parametrize("buffers", ["shared", "local"])
@pytest.mark.parametrize(
    "method",
    [
        dc.methods.FedAvg(epochs=2, batch=4),
        dc.methods.Local(steps=5, batch=4),
        dc.methods.Ditto(steps=5, batch=4, solver=dc.methods.FedAvg(epochs=1, batch=4)),
    ],
    ids=["FedAvg", "Local", "Ditto"],
)
def test_vmap_and_loop_agree_on_ragged_minibatches(method: dc.methods.Method, buffers: Any) -> None:
    vmapped, looped = (
        dc.simulate(Task(model(), buffers=buffers), data(), method, rounds=3, cohort=2, mode=mode)
        for mode in ("vmap", "loop")
    )
    assert [run.config["execution"]["mode"] for run in (vmapped, looped)] == ["vmap", "loop"]
    for k in range(3):
        close(vmapped.personal(k, round="last").state_dict(), looped.personal(k, round="last").state_dict())


def test_ditto_keeps_separate_statistics_for_its_two_models() -> None:
    work: dict[str, Any] = {"lr": 0.1, "steps": 4, "batch": 4}
    solver = dc.methods.FedAvg(**work)
    ditto, fedavg, local = (
        dc.simulate(Task(model()), data(), method, rounds=3)
        for method in (dc.methods.Ditto(lam=0.0, solver=solver, **work), solver, dc.methods.Local(**work))
    )
    close(ditto.shared(round="last").state_dict(), fedavg.shared(round="last").state_dict())
    for k in range(3):
        close(ditto.personal(k, round="last").state_dict(), local.personal(k, round="last").state_dict())
        apart = (
            statistics(ditto.personal(k, round="last"))["1.running_mean"]
            - statistics(ditto.shared(round="last"))["1.running_mean"]
        )
        assert float(apart.abs().max()) > 0.01


def test_the_users_module_is_never_changed() -> None:
    mine = model()
    before = deepcopy(mine.state_dict())
    dc.simulate(Task(mine), data(), dc.methods.Ditto(steps=2), rounds=2)
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())


@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_a_short_last_minibatch_of_one_is_refused_and_drop_last_leaves_it_out(mode: Any) -> None:
    task, federation = Task(model()), data((8, 9, 6))  # the second client has one left over
    method = dc.methods.FedAvg(epochs=1, batch=4)
    with pytest.raises(
        TaskError, match=r"^client '1': BatchNorm cannot train on a batch of a single example\. Set drop_last"
    ):
        dc.simulate(task, federation, method, rounds=1, mode=mode)
    run = dc.simulate(task, federation, method, rounds=1, mode=mode, drop_last=True)
    assert run.collapse is None
    assert run.clients.filter(round=1)["gradients"].to_list() == [2, 2, 1]


def test_a_first_client_with_a_single_example_gets_the_same_answer() -> None:
    with pytest.raises(TaskError, match=r"^client '?0.*: BatchNorm cannot train on a batch of a single example"):
        dc.simulate(Task(model()), data((1, 6)), dc.methods.FedAvg(), rounds=1)


def test_with_local_statistics_the_shared_model_is_measured_with_each_clients_own() -> None:
    """The shared model of Ditto over FedAvg is FedAvg's, which every client deploys with its own statistics."""
    solver = dc.methods.FedAvg(weighted=False, **FULL)
    task, federation = Task(model(), buffers="local"), data()
    ditto = dc.simulate(task, federation, dc.methods.Ditto(steps=1, batch=None, solver=solver), rounds=3)
    fedavg = dc.simulate(task, federation, solver, rounds=3)
    for column in ("train_loss", "test_loss"):
        shared, deployed = (
            run.history.evaluated[which][3][column] for run, which in ((ditto, "shared"), (fedavg, "personal"))
        )
        close(torch.from_numpy(shared), torch.from_numpy(deployed))
