"""Fine-tuning from a solver's model: plain, tied by an L2 norm, by EWC, or by what the models say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from descant import FederatedData, Task, simulate
from descant.context import Context
from descant.engine import Evaluation
from descant.engine.surroundings import Surroundings
from descant.engine.view import View
from descant.errors import SettingError, TaskError
from descant.execution import Loop, Vmap
from descant.methods import EWC, SKL, Ditto, FedAvg, FedProx, FineTune, PerFedAvg
from descant.methods.finetune import symmetrised_kl
from descant.task import Predict
from tests.methods.runs import MINI, ROUNDS, SEED, N, Vector, cohort_of, deployed, far, run, shared

AVG: dict[str, Any] = {"lr": 0.3, "steps": 3, "batch": None}
FULL: dict[str, Any] = {"lr": 0.2, "steps": 4, "batch": None}
KINDS = (FineTune, EWC, SKL)


class Oracle:
    """FedAvg and then fine-tuning of a logistic model, client by client; gradients are worked out by hand."""

    def __init__(self, data: FederatedData, task: Task, slope: Any) -> None:
        self.parts = [(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(N))]
        self.theta, self.slope = task.start().numpy(), slope

    def solve(self, cohort: int, rounds: int) -> Vector:
        w = self.theta
        for t in range(1, rounds + 1):
            chosen = cohort_of(t, cohort)
            n = sum(len(self.parts[k][1]) for k in chosen)
            update = np.zeros_like(w)
            for k in chosen:
                x = w
                for _ in range(3):
                    x = x - 0.3 * self.slope(k, x)
                update += len(self.parts[k][1]) / n * (x - w)
            w = w + update
        return w

    def probabilities(self, k: int, x: Vector) -> Vector:
        e = np.exp(self.parts[k][0] @ x[:12].reshape(3, 4).T + x[12:])
        return np.asarray(e / e.sum(1, keepdims=True))

    def fisher(self, k: int, w: Vector) -> Vector:
        """The mean of the squares of every example's own gradient."""
        X, y = self.parts[k]
        squares = np.zeros_like(w)
        for x, label, p in zip(X, y, self.probabilities(k, w), strict=True):
            g = p - (np.arange(3) == label)
            squares += np.concatenate([np.outer(g, x).ravel(), g]) ** 2
        return squares / len(y)

    def skl(self, k: int, v: Vector, w: Vector) -> Vector:
        """The gradient in v of the mean of KL(p, q) + KL(q, p): p (r - <p, r>) + p - q with r = log p - log q."""
        p, q = self.probabilities(k, v), self.probabilities(k, w)
        r = np.log(p) - np.log(q)
        G = (p * (r - (p * r).sum(1, keepdims=True)) + p - q) / len(p)
        return np.concatenate([(G.T @ self.parts[k][0]).ravel(), G.sum(0)])

    def pull(self, kind: Any, k: int, v: Vector, w: Vector) -> Vector:
        if kind is SKL:
            return self.skl(k, v, w)
        return (self.fisher(k, w) if kind is EWC else 1.0) * (v - w)

    def tune(self, kind: Any, k: int, v: Vector, w: Vector, lam: float) -> Vector:
        for _ in range(4):
            v = v - 0.2 * (self.slope(k, v) + lam * self.pull(kind, k, v, w))
        return v


@pytest.fixture(scope="module")
def oracle(data: FederatedData, linear: Task, slope: Any) -> Oracle:
    return Oracle(data, linear, slope)


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("lam", [0.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_deploys_fine_tunes(
    data: FederatedData, linear: Task, oracle: Oracle, kind: Any, lam: float, cohort: int
) -> None:
    done = run(linear, data, kind(lam=lam, solver=FedAvg(**AVG), **FULL), cohort=cohort)
    w = oracle.solve(cohort, ROUNDS)
    expected = np.stack([oracle.tune(kind, k, w, w, lam) for k in range(N)])
    assert far(shared(done), w) <= 1e-10
    assert far(deployed(done), expected) <= 1e-10
    assert far(expected, w[None]) > 1e-2


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_of_fine_tuning_come_after_those_of_the_solver(
    data: FederatedData, linear: Task, oracle: Oracle, kind: Any, cohort: int
) -> None:
    done = run(linear, data, kind(lam=0.7, after=3, solver=FedAvg(**AVG), **FULL), cohort=cohort, rounds=5)
    w = oracle.solve(cohort, 3)
    v: dict[int, Vector] = {}
    for t in (4, 5):
        for k in cohort_of(t, cohort):
            v[k] = oracle.tune(kind, k, v.get(k, w), w, 0.7)
    assert far(deployed(done), np.stack([v.get(k, w) for k in range(N)])) <= 1e-10
    assert (len(v) < N) == (cohort == 3), "who never began deploys the shared model"
    rows = done.history.rounds
    assert [row["bytes_up"] for row in rows] == [cohort * (15 * 8 + 4)] * 3 + [0] * 2
    told = [len({*cohort_of(4, cohort)}), len(v) - cohort]
    assert [row["bytes_down"] for row in rows] == [15 * 8 * n for n in [cohort] * 3 + told]


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
@pytest.mark.parametrize("after", [1, 3])
def test_with_an_l2_tie_it_is_dittos_second_solver(
    data: FederatedData, mlp: Task, after: int, stragglers: float
) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    solver = FedProx(mu=0.3, **MINI)
    ours = run(mlp, data, FineTune(lam=0.4, after=after, solver=solver, **MINI), **settings)
    dittos = run(mlp, data, Ditto(lam=0.4, after=after, solver=solver, **MINI), **settings)
    assert far(deployed(ours), deployed(dittos)) <= 1e-12
    assert ours.rounds.drop("seconds").equals(dittos.rounds.drop("seconds"))


@pytest.mark.few(1)
@pytest.mark.parametrize("after", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_without_steps_it_is_the_solver(data: FederatedData, mlp: Task, kind: Any, after: int | None) -> None:
    solver, settings = FedAvg(**MINI), {"cohort": 4, "stragglers": 0.4}
    done = run(mlp, data, kind(steps=0, after=after, solver=solver), **settings)
    alone = run(mlp, data, solver, **settings | {"rounds": after or ROUNDS})
    assert far(shared(done), shared(alone)) == 0
    assert far(deployed(done), shared(alone).expand(N, -1)) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_shared_model_and_the_bill_are_the_solvers(data: FederatedData, mlp: Task, kind: Any) -> None:
    """What is fine-tuned to be deployed is trained apart: neither state nor accounts know of it."""
    solver, settings = FedAvg(**MINI), {"cohort": 4, "stragglers": 0.4, "evaluate": 1}
    done, alone = (run(mlp, data, method, **settings) for method in (kind(solver=solver, **MINI), solver))
    assert far(shared(done), shared(alone)) == 0
    same = ["bytes_up", "bytes_down", "gradients", "received", "lost"]
    assert done.rounds.select(same).equals(alone.rounds.select(same))
    losses = [run_.history.evaluated["personal"][ROUNDS]["train_loss"].mean() for run_ in (done, alone)]
    assert losses[0] < losses[1], "fine-tuning fits the client's own data better"


def test_a_client_chooses_between_both_models(data: FederatedData, mlp: Task) -> None:
    parts = [data.train.client(k) for k in range(N)]
    split = FederatedData.from_arrays([{"train": p, "valid": p, "test": p} for p in parts], classes=3)
    how = Evaluation(every=ROUNDS, models=("personal", "shared", "selected"))
    done = run(mlp, split, FineTune(solver=FedAvg(**AVG), **FULL), evaluate=how)
    best = done.history.evaluated["selected"][ROUNDS]["valid_accuracy"]
    for model in ("personal", "shared"):
        assert (best >= done.history.evaluated[model][ROUNDS]["valid_accuracy"]).all()


def view(task: Task, data: FederatedData, execution: Any = Vmap, **settings: Any) -> View:
    who = torch.arange(len(data))
    ctx = Context(1, SEED, len(data), task.layout, task.start(), party=who)
    buffers = {model: torch.zeros(len(who), 0) for model in ("shared", "personal")}
    return View(Surroundings(execution(task), data, **settings), ctx, who, buffers)


@pytest.mark.parametrize("execution", [Vmap, Loop])
def test_the_fisher_information_is_the_mean_of_squared_gradients_of_single_examples(
    data: FederatedData, mlp: Task, execution: Any
) -> None:
    w = mlp.start() + 0.1 * torch.arange(N * 43).double().reshape(N, 43).sin()
    local = view(mlp, data, execution)
    (fisher,) = EWC().prepare(w, local, None)
    for k in range(N):
        model, squares = mlp.module(w[k]), torch.zeros(43).double()
        for x, y in zip(*data.train.client(k), strict=True):
            loss = nn.functional.cross_entropy(model(x[None]), y[None])
            squares += torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])]).square()
        assert far(fisher[k], squares / len(data.train.client(k)[1])) <= 1e-12
    assert local.evaluations.tolist() == data.train.sizes.tolist(), "one gradient an example"


def test_a_straggler_takes_the_mean_over_the_examples_that_it_looked_at(data: FederatedData, mlp: Task) -> None:
    """The sum over some of them, divided by all, would be a weaker tie."""
    whole, part = (view(mlp, data, stragglers=share) for share in (0.0, 1.0))
    w = mlp.start().expand(N, -1)
    (all_,), (some,) = EWC().prepare(w, whole, None), EWC().prepare(w, part, None)
    seen = part.taken("personal/fisher").steps
    assert (seen < data.train.sizes).any() and (seen >= 1).all()
    for k in range(N):
        model = mlp.module(w[k])
        squares = []
        for x, y in zip(*data.train.client(k), strict=True):
            loss = nn.functional.cross_entropy(model(x[None]), y[None])
            gradient = torch.autograd.grad(loss, [*model.parameters()])
            squares.append(torch.cat([g.flatten() for g in gradient]).square())
        bound = torch.stack(squares).max(0).values
        assert (some[k] <= bound + 1e-12).all()
        if seen[k] == len(squares):
            assert far(some[k], all_[k]) <= 1e-12
        elif seen[k] == 1:
            assert min(far(some[k], one) for one in squares) <= 1e-12


def test_the_gradient_of_skl_is_autograds(data: FederatedData, mlp: Task) -> None:
    """Against torch's own divergences, taken both ways."""
    v, w = mlp.start(), mlp.start() + 0.3 * torch.arange(43).double().cos()
    for k in range(N):
        batch = view(mlp, data).part("train").client(k)
        x = v.clone().requires_grad_()
        ours = torch.autograd.grad(symmetrised_kl(Predict(mlp, torch.zeros(0), batch), x, batch, w), x)[0]
        x = v.clone().requires_grad_()
        p, q = (torch.log_softmax(mlp.apply(z, torch.zeros(0), batch.inputs)[0], -1) for z in (x, w))
        both = (nn.functional.kl_div(a, b, log_target=True, reduction="batchmean") for a, b in ((p, q), (q, p)))
        assert far(ours, torch.autograd.grad(sum(both, torch.zeros(())), x)[0]) <= 1e-12
        assert float(ours.abs().max()) > 1e-3


def test_skl_wants_scores_of_classes(regression: FederatedData, plane: Task) -> None:
    """It is refused before anything is trained, and by the objective itself."""
    with pytest.raises(SettingError, match=r"model: it gives one number an example, .*'skl' cannot train it: SKL"):
        simulate(plane, regression, SKL(**FULL), rounds=1, progress=lambda record: pytest.fail("it began"))
    batch = view(plane, regression).part("train").client(0)
    with pytest.raises(TaskError, match="SKL compares probabilities of classes"):
        symmetrised_kl(Predict(plane, torch.zeros(0), batch), plane.start(), batch, plane.start())


def test_ewc_refuses_batchnorm(data: FederatedData) -> None:
    parts = [data.train.client(k) for k in (0, 2, 4)]
    several = FederatedData.from_arrays([{"train": p} for p in parts], classes=3)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    with pytest.raises(SettingError, match=r"model: .*'ewc' cannot train it: .*one example alone.*nn\.GroupNorm"):
        run(task, several, EWC(solver=FedAvg(**AVG), **FULL), rounds=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [FineTune, SKL])
@pytest.mark.parametrize("after", [None, 1])
def test_running_statistics_go_on_from_the_shared_models(data: FederatedData, kind: Any, after: int | None) -> None:
    """One round of FedAvg, and three steps of one client from there, in plain torch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    several = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4)], classes=3)
    method = kind(lam=0.0, after=after, solver=FedAvg(**AVG), **FULL)
    done = run(Task(module), several, method, rounds=1 if after is None else 2)
    start = run(Task(module), several, FedAvg(**AVG), rounds=1)
    for k in range(3):
        model = start.shared().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        for _ in range(4):
            optimizer.zero_grad()
            X, y = several.train.client(k)
            nn.functional.cross_entropy(model(X), y).backward()
            optimizer.step()
        found = done.personal(k).state_dict()
        for name, value in model.state_dict().items():
            assert "num_batches" in name or far(found[name], value) <= 1e-10, name


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_make_no_sense_are_refused(kind: Any) -> None:
    with pytest.raises(SettingError, match=rf"{kind.__name__}\.lam = -1\.0: it must be zero or more"):
        kind(lam=-1.0)
    with pytest.raises(SettingError, match=rf"{kind.__name__}\.steps = -1: it must be zero or more, or nothing"):
        kind(steps=-1)
    with pytest.raises(SettingError, match=rf"{kind.__name__}\.after = 0"):
        kind(after=0)
    with pytest.raises(SettingError, match=rf"{kind.__name__}\.solver"):
        kind(solver=PerFedAvg())
