"""Where Ditto is another method or a closed form: lambda from 0 to infinity, quadratics, the solver alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Run, Task
from descant.aggregators import Aggregator, unheard
from descant.aggregators import RecordFigure as Reports
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, FedProx, Local, LocalView, Method, Tree
from tests.held import personal, shared
from tests.methods.ditto_loop import ROUNDS, run
from tests.methods.runs import MINI, far, who


@dataclass(frozen=True, kw_only=True)
class Middle(Aggregator):
    """The coordinate-wise median, as another aggregator than the mean."""

    name: ClassVar[str] = "middle"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Reports = unheard
    ) -> dict[str, Tensor]:
        return {name: leaf.median(0).values for name, leaf in leaves.items()}


@pytest.mark.few(1)
@pytest.mark.parametrize(("everyone", "stragglers"), [(False, 0.0), (True, 0.6)])
@pytest.mark.parametrize("aggregator", ["mean", Middle()], ids=["mean", "median"])
@pytest.mark.parametrize("solver", [FedAvg(**MINI), FedProx(mu=0.5, **MINI)], ids=["fedavg", "fedprox"])
def test_the_shared_model_of_fine_tuning_is_the_solvers_with_any_aggregator(
    data: FederatedData, mlp: Task, solver: Method, aggregator: Any, stragglers: float, everyone: bool
) -> None:
    settings = who(4, everyone) | {"stragglers": stragglers, "aggregator": aggregator}
    for after, rounds in ((4, 4), (None, ROUNDS)):
        alone = shared(run(mlp, data, solver, **settings | {"rounds": rounds}))
        over = Ditto(after=after, solver=solver, **MINI)
        assert far(shared(run(mlp, data, over, **settings)), alone) <= 1e-12
        assert far(alone, mlp.start()) > 1e-2


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_fine_tuning_with_lambda_0_is_local_training_from_the_solvers_model(
    data: FederatedData, mlp: Task, stragglers: float
) -> None:
    """The minibatches too: those of Local in the same rounds, which here begin after the solver's."""
    settings: dict[str, Any] = {"stragglers": stragglers, "rounds": 3}
    method = Ditto(lam=0.0, after=2, solver=FedAvg(**MINI), **MINI)
    w = shared(run(mlp, data, FedAvg(**MINI), **settings | {"rounds": 2}))

    class FromTheThird(Local):
        def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
            if local.round < 3:
                return {}, {"v": w.expand(len(local.clients), -1)}
            return super().client(down, state, local)

    local = personal(run(mlp, data, FromTheThird(**MINI), **settings))
    assert far(personal(run(mlp, data, method, **settings)), local) <= 1e-12
    assert far(local, w) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("after", [None, 3])
def test_ditto_tends_to_its_global_model_as_lambda_grows(data: FederatedData, mlp: Task, after: int | None) -> None:
    """At the rate 1 / (1 + lambda), v - w is of the order 1 / lambda; w is the model that the round began with."""
    solver, rounds = FedAvg(**MINI), 5
    heard = shared(run(mlp, data, solver, rounds=after or rounds - 1))
    gaps = []
    for lam in (1e2, 1e4, 1e6):
        method = Ditto(lam=lam, lr=1 / (1 + lam), steps=5, batch=3, after=after, solver=solver)
        gaps.append(far(personal(run(mlp, data, method, rounds=rounds)), heard.expand(7, -1)))
    assert gaps[0] < 0.05 and gaps[1] < 0.015 * gaps[0] and gaps[2] < 0.015 * gaps[1], gaps


@pytest.mark.slow
@pytest.mark.parametrize("lam", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("after", [None, 75])
def test_on_quadratics_ditto_finds_the_solution_of_its_objective(
    regression: FederatedData, plane: Task, quadratics: Any, lam: float, after: int | None
) -> None:
    """With one full-batch step a round: w* = (sum n_k H_k)^-1 sum n_k g_k, v_k = (H_k + lam)^-1 (g_k + lam w*)."""
    H, g, n = quadratics
    w = np.linalg.solve(np.einsum("k,kij->ij", n, H), n @ g)
    v = np.linalg.solve(H + lam * np.eye(4), (g + lam * w)[..., None])[..., 0]
    solver = FedAvg(lr=0.25, steps=1, batch=None)
    method = Ditto(lam=lam, lr=0.2, steps=1, batch=None, solver=solver, after=after)
    done = run(plane, regression, method, rounds=110 if after is None else 200)
    assert far(shared(done), w) < 1e-6
    assert far(personal(done), v) < 1e-6
    assert far(v, w[None]) > 0.1, "the solutions differ from the shared one"


def batchnorm() -> Task:
    torch.manual_seed(4)
    return Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())


def statistics(done: Run) -> Tensor:
    """The running means and variances of what the four clients deploy, [4, 10]."""
    layers = [done.personal(k, round="last")[1] for k in range(4)]
    return torch.stack([torch.cat([layer.running_mean, layer.running_var]) for layer in layers])


@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_running_statistics_go_from_the_shared_model_to_the_fine_tuned_one(
    data: FederatedData, buffers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4, 6)], classes=3)
    task = Task(batchnorm().model, buffers=buffers)
    solver = FedAvg(lr=0.1, steps=3, batch=None)
    with monkeypatch.context() as patched:  # a run that ends before the fine-tuning is refused otherwise
        patched.setattr(Ditto, "check_run", lambda *_: None)
        done = run(task, four, Ditto(after=4, solver=solver, batch=None), rounds=3)
    alone = run(task, four, solver, rounds=3)
    x, before = personal(done), statistics(done)
    assert far(x, personal(alone)) <= 1e-12
    assert far(before, statistics(alone)) <= 1e-12
    # Tuned at the smallest rate: its model stays, its statistics move on from those of the shared model.
    after = statistics(run(task, four, Ditto(after=3, solver=solver, lr=1e-12, steps=1, batch=None), rounds=4))
    hidden = [(four.train.client(k)[0] @ x[k][:20].view(5, 4).T + x[k][20:25]) for k in range(4)]
    means = torch.stack([h.mean(0) for h in hidden])
    assert far(after[:, :5], 0.9 * before[:, :5] + 0.1 * means) <= 1e-9
    with pytest.raises(
        SettingError, match=r"Ditto\.lam = \(0\.1, 1\.0\): it must be one number for a model with run"
    ):
        run(task, four, Ditto(lam=(0.1, 1.0), solver=solver, batch=None))
