"""Local optimizers are torch's own, under every method, in every mode, with rates that depend on the round."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import descant as dc
from descant.catalog import build, describe
from descant.errors import SettingError
from descant.listing import entries
from descant.methods import (
    FLAME,
    METHODS,
    OPTIMIZERS,
    SGD,
    Adam,
    Descent,
    Ditto,
    FedAvg,
    FedPlus,
    FedProx,
    LGFedAvg,
    Local,
    Momentum,
    PFedMe,
    PowerLaw,
    Scaffold,
    Stages,
    Work,
)
from tests import held
from tests.interrupted import interrupt

ROUNDS, STEPS, LR = 3, 3, 0.05
DESCENTS = {name: kind for name, kind in METHODS.items() if issubclass(kind, Descent)}
MODES = ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)]
RATE = Stages(values=((1, 0.05), (2, 0.02), (3, 0.01)))
OURS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"optimizer": Momentum(beta=0.6)},
    "adam": {"optimizer": Adam(beta1=0.8, beta2=0.95, eps=1e-6)},
}


def torchs(name: str, parameters: Any, lr: float, decay: float) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay)
    return torch.optim.SGD(parameters, lr=lr, momentum=0.6 if name == "momentum" else 0.0, weight_decay=decay)


def alone(task: dc.Task, data: dc.FederatedData, k: int, name: str, rates: list[float]) -> nn.Module:
    """Client k trained by torch, with a new optimizer in every round."""
    model, loss = task.module(task.start()), nn.functional.cross_entropy
    inputs, targets = data.train.client(k)
    for lr in rates:
        optimizer = torchs(name, model.parameters(), lr, 0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            outputs = model(inputs)
            if not targets.is_floating_point():
                loss(outputs, targets).backward()
            else:
                (outputs.squeeze(1) - targets).square().mean().backward()
            optimizer.step()
    return model


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("scheduled", [False, True], ids=["constant", "by round"])
@pytest.mark.parametrize("problem", ["quadratic", "mlp"])
def test_local_training_is_torchs_own(
    request: pytest.FixtureRequest, problem: str, scheduled: bool, name: str, mode: Any
) -> None:
    names = {"quadratic": ("plane", "regression"), "mlp": ("mlp", "data")}[problem]
    task, data = (request.getfixturevalue(fixture) for fixture in names)
    method = Local(lr=RATE if scheduled else LR, steps=STEPS, batch=None, weight_decay=0.01, **OURS[name])
    run = dc.simulate(task, data, method, rounds=ROUNDS, mode=mode)
    rates = [RATE.at(t) if scheduled else LR for t in range(1, ROUNDS + 1)]
    for k in range(len(data)):
        expected = alone(task, data, k, name, rates)
        for ours, theirs in zip(run.personal(k).parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_clients_that_finish_early_keep_their_own_count_of_steps(
    data: dc.FederatedData, mlp: dc.Task, mode: Any
) -> None:
    """Epochs of minibatches of 3: from one step to five, and Adam's correction depends on the number."""
    common: dict[str, Any] = {"lr": LR, "epochs": 2, "batch": 3, "optimizer": Adam()}
    together = dc.simulate(mlp, data, Local(**common), rounds=2, mode=mode)
    for k in (1, 4):
        single = dc.simulate(mlp, data, Local(**common), rounds=2, mode=mode, chunk=1)
        torch.testing.assert_close(
            together.personal(k).state_dict(), single.personal(k).state_dict(), rtol=1e-12, atol=1e-12
        )


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", DESCENTS.values(), ids=DESCENTS)
@pytest.mark.parametrize("optimizer", [Momentum(), Adam()], ids=lambda o: o.name)
def test_every_method_takes_an_optimizer(
    data: dc.FederatedData, linear: dc.Task, kind: type[Descent], optimizer: Any
) -> None:
    """After several steps of a round models differ from those of plain steps, and personal ones learn.

    SCAFFOLD takes one where it does not read gradients off the moves.
    """
    how: dict[str, Any] = {"rounds": 2, "mode": "vmap"}
    own: dict[str, Any] = {"option": "I"} if kind is Scaffold else {}
    plain, moved = (
        dc.simulate(linear, data, kind(lr=0.01, steps=STEPS, batch=None, **own, **more), **how)
        for more in ({}, {"optimizer": optimizer})
    )
    assert moved.collapse is None and describe(kind(optimizer=optimizer, **own))["optimizer"] == describe(optimizer)
    apart = moved.personal(4).weight - plain.personal(4).weight
    assert float(apart.detach().abs().max()) > 1e-4
    losses = [moved.history.evaluated["personal"][t]["train_loss"].mean() for t in (0, 2)]
    one_model = not kind.personalizes or kind is LGFedAvg  # which shares the last layer: here, the only one
    assert losses[1] < losses[0] or one_model  # it may be pulled to and fro


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [kind for kind in DESCENTS.values() if not issubclass(kind, FedPlus)])
def test_a_rate_by_round_is_that_rate_in_each_round(
    data: dc.FederatedData, linear: dc.Task, kind: type[Descent]
) -> None:
    """The same rate throughout is the number; another one from round 2 on changes what follows, and that only."""
    common: dict[str, Any] = {"steps": 3, "batch": None}
    settings: dict[str, Any] = {"mode": "vmap", "evaluate": 1, "rounds": 2}
    halved = Stages(values=((1, 0.01), (2, 0.005)))
    number, same, lower = (
        dc.simulate(linear, data, kind(lr=lr, **common), **settings)
        for lr in (0.01, PowerLaw(scale=0.01, power=0.0), halved)
    )
    losses = [run.history.evaluated["personal"] for run in (number, same, lower)]
    for t in (1, 2):
        assert losses[1][t]["train_loss"] == pytest.approx(losses[0][t]["train_loss"], rel=1e-12)
    assert losses[2][1]["train_loss"] == pytest.approx(losses[0][1]["train_loss"], rel=1e-12)
    assert losses[2][2]["train_loss"] != pytest.approx(losses[0][2]["train_loss"], rel=1e-6)


def test_adam_under_a_penalty_is_adam_on_the_penalised_loss(data: dc.FederatedData, linear: dc.Task) -> None:
    method = FedProx(lr=LR, mu=0.7, steps=STEPS, batch=None, optimizer=Adam(), weighted=False)
    run = dc.simulate(linear, data, method, rounds=1, mode="vmap")
    start = torch.cat([p.detach().flatten() for p in linear.model.parameters()])
    mean = torch.zeros_like(start)
    for k in range(len(data)):
        x, (inputs, targets) = start.clone().requires_grad_(), data.train.client(k)
        optimizer = torch.optim.Adam([x], lr=LR)
        for _ in range(STEPS):
            optimizer.zero_grad()
            scores = inputs @ x[:12].view(3, 4).T + x[12:]
            loss = nn.functional.cross_entropy(scores, targets) + 0.35 * (x - start).square().sum()
            loss.backward()
            optimizer.step()
        mean += x.detach() / len(data)
    got = torch.cat([p.detach().flatten() for p in run.shared().parameters()])
    torch.testing.assert_close(got, mean, rtol=1e-10, atol=1e-10)


def test_in_single_precision_adam_is_torchs_own_too() -> None:
    """A gradient taken from x - x' would have the rounding of x: a hundredth of the way is lost at small rates."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 8, generator=generator)
    data = dc.FederatedData.from_arrays([{"train": (inputs, (inputs[:, 0] > 0).long())}])
    torch.manual_seed(0)
    task = dc.Task(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    run = dc.simulate(task, data, Local(lr=1e-4, steps=50, batch=None, optimizer=Adam()), rounds=1, mode="vmap")
    model = task.module(task.start())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(50):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), data.train.client(0)[1]).backward()
        optimizer.step()
    ours, theirs = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in (run.personal(0), model))
    way = float((theirs - task.start()).norm())
    assert float((ours - theirs).norm()) < 1e-3 * way


def test_adam_without_memory_goes_by_signs() -> None:
    """beta1 = beta2 = 0: every coordinate moves by lr."""
    x = torch.tensor([[1.0, -2.0, 3.0]])
    adam = Adam(beta1=0.0, beta2=0.0)
    move, state = adam.move(-0.1 * x, 0.1, adam.start(x))
    again, _ = adam.move(0.1 * x, 0.1, state)
    torch.testing.assert_close(move, -0.1 * x.sign())
    torch.testing.assert_close(again, 0.1 * x.sign())


def test_momentum_is_short_for_the_optimizer(data: dc.FederatedData, linear: dc.Task) -> None:
    runs = [
        dc.simulate(linear, data, PFedMe(steps=4, **how), rounds=2, mode="vmap")
        for how in ({"momentum": 0.7}, {"optimizer": Momentum(beta=0.7)})
    ]
    assert torch.equal(*map(held.personal, runs))


@pytest.mark.slow
def test_rates_that_change_do_not_make_programs(
    data: dc.FederatedData, linear: dc.Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, options = torch.compile, {"backend": "eager"}
    monkeypatch.setattr(torch, "compile", lambda f, **how: compiler(f, **how | options))
    torch._dynamo.reset()
    counters.clear()
    method = Local(lr=PowerLaw(scale=0.1, power=-0.5), steps=2, batch=None, optimizer=Adam())
    run = dc.simulate(linear, data, method, rounds=12, mode="compile")
    assert counters["stats"]["unique_graphs"] == 1 and not run.config["execution"]["fallbacks"]


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop", pytest.param("compile", marks=pytest.mark.slow)])
def test_a_run_with_adam_goes_on_bit_for_bit(
    data: dc.FederatedData, linear: dc.Task, tmp_path: Path, mode: Any
) -> None:
    method = Ditto(lr=RATE, steps=3, optimizer=Adam(), solver=FedAvg(lr=RATE, momentum=0.5, steps=2))
    how: dict[str, Any] = {"rounds": 5, "cohort": 3, "mode": mode, "commit": 1}
    whole = dc.simulate(linear, data, method, **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(linear, data, method, out=tmp_path, progress=interrupt(3), **how)
    again = dc.resume(tmp_path, linear, data)
    torch.testing.assert_close(held.everything(again), held.everything(whole), rtol=0, atol=0)


def test_optimizers_have_names() -> None:
    spec = {"name": "fedavg", "optimizer": {"name": "adam", "beta1": 0.5}, "lr": {"name": "power", "scale": 0.1}}
    method = FedAvg(optimizer=Adam(beta1=0.5), lr=PowerLaw(scale=0.1))
    assert build("methods", spec) == method == build("methods", loads(dumps(describe(method))))
    assert build("methods", {"name": "local", "optimizer": "momentum"}) == Local(optimizer=Momentum())
    assert [entry["name"] for entry in entries("optimizers")] == list(OPTIMIZERS) == ["sgd", "momentum", "adam"]
    with pytest.raises(SettingError, match=r"no optimizer called 'adan'\. Did you mean 'adam'"):
        build("methods", {"name": "local", "optimizer": "adan"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Momentum(beta=1.0), r"Momentum\.beta = 1\.0: it must be from 0 to below 1"),
        (lambda: Adam(beta2=-0.1), r"Adam\.beta2 = -0\.1: it must be from 0 to below 1"),
        (lambda: Adam(eps=0.0), r"Adam\.eps = 0\.0: it must be a positive number"),
        (lambda: Local(momentum=0.5, optimizer=Adam()), r"Local\.momentum = 0\.5: it must be zero where another"),
        (lambda: FedPlus(lr=RATE), r"FedPlus\.lr = Stages.*: it must be a number: kappa depends on it"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


def test_adam_must_know_the_rate_and_one_tensor(data: dc.FederatedData, linear: dc.Task) -> None:
    class Unknown(Local):
        @property
        def work(self) -> Work:
            return Work(steps=2, optimizer=Adam())

    with pytest.raises(SettingError, match=r"Work\.lr is missing: adam must know the rate"):
        dc.simulate(linear, data, Unknown(), rounds=1, mode="vmap")

    class Pair(Local):
        def client(self, down: Any, state: Any, local: Any) -> Any:
            return {}, {"v": local.run(self.step, (state["v"], state["v"]), work=self.work, role="personal")[0]}

    with pytest.raises(SettingError, match="a step on several tensors makes its own moves"):
        dc.simulate(linear, data, Pair(momentum=0.5), rounds=1, mode="vmap")


def test_an_optimizer_of_ones_own_that_extends_sgd_makes_its_moves(data: dc.FederatedData, linear: dc.Task) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Half(SGD):
        def move(self, proposed: Any, lr: float, state: Any) -> Any:
            return proposed / 2, state

    halved, plain = (
        dc.simulate(linear, data, Local(lr=lr, optimizer=by), rounds=1, mode="vmap")
        for lr, by in ((0.1, Half()), (0.05, SGD()))
    )
    assert torch.allclose(halved.personal(0).weight, plain.personal(0).weight, rtol=1e-5, atol=1e-7)


def test_a_rule_stops_adam_too(data: dc.FederatedData, linear: dc.Task) -> None:
    run = dc.simulate(linear, data, FLAME(eps=1e-4, cap=400, lr=0.02, optimizer=Adam()), rounds=1, mode="vmap")
    assert 0 <= run.history.rounds[0]["capped"] < len(data)
