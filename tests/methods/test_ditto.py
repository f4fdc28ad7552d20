"""Ditto in full: fine-tuning after the solver, a lambda chosen by every client, solvers that fall silent.

The oracle is a plain NumPy loop over clients, written from the paper; on quadratics it is the closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from descant import FederatedData, Run, Task, simulate
from descant.aggregators import Aggregator, unheard
from descant.aggregators import RecordFigure as Reports
from descant.catalog import build, describe
from descant.engine import Simulation
from descant.engine.cohort import finished_share, sample
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, FedProx, Local, LocalView, Method, ServerView, Tree

Vector = NDArray[np.float64]
SEED, ROUNDS = 3, 6
FULL: dict[str, Any] = {"batch": None}
MINI: dict[str, Any] = {"lr": 0.1, "steps": 5, "batch": 3}
PARTICIPATION = pytest.mark.parametrize(("cohort", "everyone"), [(7, False), (3, False), (3, True)])
VALID = (0, 3, 4, 5, 8, 12, 2)  # validation examples: too few of them for clients 0, 1 and 6


@pytest.fixture(scope="module")
def validated(data: FederatedData) -> FederatedData:
    """The clients of `data`, most of them with validation data, of another labelling than the training data."""
    generator = torch.Generator().manual_seed(8)
    clients = []
    for k, n in enumerate(VALID):
        X, y = data.train.client(k)
        valid = torch.randn(n, X.shape[1], generator=generator, dtype=torch.float64)
        label = torch.randint(3, (n,), generator=generator)
        parts = {"train": (X, y), "valid": (valid, label)}
        clients.append({part: rows for part, rows in parts.items() if len(rows[1])})
    return FederatedData.from_arrays(clients, classes=3)


class Resting(FedAvg):
    """FedAvg that rests in every second round: nothing travels, and nothing is learnt."""

    def silent(self, server: ServerView) -> bool:
        return server.ctx.round % 2 == 0

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return super().client(down, state, local) if down else ({}, state)


@dataclass(frozen=True, kw_only=True)
class Middle(Aggregator):
    """The coordinate-wise median, as another aggregator than the mean."""

    name: ClassVar[str] = "middle"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Reports = unheard
    ) -> dict[str, Tensor]:
        return {name: leaf.median(0).values for name, leaf in leaves.items()}


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    how = {"rounds": ROUNDS, "seed": SEED, "evaluate": 100, "mode": "vmap"} | settings
    done = simulate(task, data, method, **how)
    assert done.collapse is None
    return done


def live(done: Run) -> Simulation:
    assert done._simulation is not None
    return done._simulation


def personal(done: Run) -> Tensor:
    return live(done).personal(live(done).everyone)[0]


def far(a: Tensor | Vector, b: Tensor | Vector) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def column(done: Run, name: str) -> list[Any]:
    return [row[name] for row in done.history.rounds]


@dataclass
class Oracle:
    """Line by line over clients: `solve` are the solver's rounds, `tune` is line 6."""

    slope: Any
    theta: Vector
    sizes: list[int]
    cohort: int
    everyone: bool
    steps: int = 4
    lr: float = 0.2
    solver_steps: int = 3
    solver_lr: float = 0.3

    def who(self, t: int) -> tuple[list[int], list[int]]:
        """Whose messages count, and who trains, in round t = 1, 2, ..."""
        cohort = sample(SEED, t, self.cohort, torch.ones(len(self.sizes))).tolist()
        return cohort, list(range(len(self.sizes))) if self.everyone else cohort

    def solve(self, w: Vector, t: int) -> Vector:
        cohort, _ = self.who(t)
        n = sum(self.sizes[k] for k in cohort)
        update = np.zeros_like(w)
        for k in cohort:
            x = w
            for _ in range(self.solver_steps):
                x = x - self.solver_lr * self.slope(k, x)
            update += self.sizes[k] / n * (x - w)
        return w + update

    def tune(self, k: int, v: Vector, w: Vector, lam: float) -> Vector:
        for _ in range(self.steps):
            v = v - self.lr * (self.slope(k, v) + lam * (v - w))
        return v

    def finetuned(self, lams: tuple[float, ...], after: int) -> tuple[Vector, dict[int, list[Vector]]]:
        """w* and, of the clients that have begun, one model for every lambda."""
        w, v = self.theta, {}
        for t in range(1, ROUNDS + 1):
            if t <= after:
                w = self.solve(w, t)
                continue
            for k in self.who(t)[1]:
                before = v.get(k, [w] * len(lams))
                v[k] = [self.tune(k, x, w, lam) for x, lam in zip(before, lams, strict=True)]
        return w, v

    def joint(self, lams: tuple[float, ...], silent: bool = False) -> tuple[Vector, list[list[Vector]]]:
        w, heard = self.theta, [self.theta for _ in self.sizes]
        v = [[self.theta] * len(lams) for _ in self.sizes]
        for t in range(1, ROUNDS + 1):
            rests = silent and t % 2 == 0
            for k in self.who(t)[1]:
                heard[k] = heard[k] if rests else w
                v[k] = [self.tune(k, x, heard[k], lam) for x, lam in zip(v[k], lams, strict=True)]
            w = w if rests else self.solve(w, t)
        return w, v


@pytest.fixture
def oracle(data: FederatedData, linear: Task, slope: Any) -> Any:
    def of(cohort: int = 7, everyone: bool = False) -> Oracle:
        return Oracle(slope, linear.start().numpy(), data.train.sizes.tolist(), cohort, everyone)

    return of


def ditto(**settings: Any) -> Ditto:
    """Ditto with the oracle's rates."""
    solver = settings.pop("solver", FedAvg(lr=0.3, steps=3, batch=None))
    return Ditto(**{"lr": 0.2, "steps": 4, "batch": None, "solver": solver} | settings)


def who(cohort: int, everyone: bool) -> dict[str, Any]:
    return {"cohort": cohort, "trainers": "everyone" if everyone else "cohort"}


def loss(theta: Vector, X: Vector, y: NDArray[np.int64]) -> float:
    scores = X @ theta[:12].reshape(3, 4).T + theta[12:]
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


@PARTICIPATION
@pytest.mark.parametrize("after", [1, 4])
def test_fine_tuning_is_the_loop_over_clients(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool, after: int
) -> None:
    done = run(linear, data, ditto(lam=0.8, after=after), **who(cohort, everyone))
    w, tuned = oracle(cohort, everyone).finetuned((0.8,), after)
    assert far(live(done).shared()[0], w) <= 1e-10
    # A client that has not begun deploys w itself.
    assert far(personal(done), np.stack([tuned.get(k, [w])[0] for k in range(7)])) <= 1e-10
    assert live(done).store.leaves["begun"].tolist() == [k in tuned for k in range(7)]
    assert len(tuned) < 7 or cohort == 7 or everyone or after == 1
    assert far(w, linear.start()) > 1e-2


@PARTICIPATION
def test_a_solver_that_falls_silent_leaves_the_last_model_that_was_heard(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool
) -> None:
    method = ditto(lam=0.8, solver=Resting(lr=0.3, steps=3, batch=None))
    done = run(linear, data, method, **who(cohort, everyone))
    w, v = oracle(cohort, everyone).joint((0.8,), silent=True)
    assert far(live(done).shared()[0], w) <= 1e-10
    assert far(personal(done), np.stack([models[0] for models in v])) <= 1e-10
    assert all((row == 0) == (t % 2 == 1) for t, row in enumerate(column(done, "bytes_down")))
    assert column(done, "bytes_up")[1::2] == [0] * 3
    assert all(column(done, "gradients")), "personal models are trained in silent rounds, too"


def test_fine_tuning_over_a_solver_that_falls_silent_begins_with_its_last_model(
    data: FederatedData, linear: Task, oracle: Any
) -> None:
    """Round 4 would be a silent one of the solver's, but it is no longer the solver's."""
    done = run(linear, data, ditto(lam=0.8, after=3, solver=Resting(lr=0.3, steps=3, batch=None)), rounds=4)
    loop = oracle()
    w = loop.solve(loop.solve(loop.theta, 1), 3)
    assert far(live(done).shared()[0], w) <= 1e-10
    assert far(personal(done), np.stack([loop.tune(k, w, w, 0.8) for k in range(7)])) <= 1e-10


@pytest.mark.few(6)
@PARTICIPATION
@pytest.mark.parametrize("after", [None, 2])
@pytest.mark.parametrize("lams", [(0.05, 0.1, 0.2), (0.1, 1.0, 2.0), (0.3, 4.0)])
def test_a_lambda_chosen_on_validation_data_is_the_loop_over_clients(
    validated: FederatedData,
    linear: Task,
    oracle: Any,
    cohort: int,
    everyone: bool,
    after: int | None,
    lams: tuple[float, ...],
) -> None:
    done = run(linear, validated, ditto(lam=lams, after=after), **who(cohort, everyone))
    found = oracle(cohort, everyone)
    w, v = found.joint(lams) if after is None else found.finetuned(lams, after)
    trained = {k for t in range(1 + (after or 0), ROUNDS + 1) for k in found.who(t)[1]}
    middle = {3: 1, 2: 0}[len(lams)]
    choice, expected = [], []
    for k in range(7):
        models = v[k] if after is None or k in v else [w] * len(lams)
        best = middle
        if VALID[k] >= 4 and k in trained:
            best = int(np.argmin([loss(x, *(part.numpy() for part in validated.valid.client(k))) for x in models]))
        choice.append(best)
        expected.append(models[best])
    assert live(done).store.leaves["choice"].tolist() == choice
    assert far(personal(done), np.stack(expected)) <= 1e-10
    assert far(live(done).shared()[0], w) <= 1e-10
    if cohort == 7:
        assert len(set(choice)) > 1, "clients differ in their choice"
        reported = [done.history.rounds[-1][f"lam={lam:g}"] for lam in lams]
        assert reported == [choice.count(c) for c in range(len(lams))]


@pytest.mark.slow
@pytest.mark.parametrize("after", [None, 2])
def test_every_candidate_is_the_ditto_of_its_lambda(validated: FederatedData, mlp: Task, after: int | None) -> None:
    """On minibatches, with stragglers: they see the same examples as if they were alone."""
    settings: dict[str, Any] = {"cohort": 4, "stragglers": 0.5}
    lams = (0.0, 0.1, 1.0, 2.0)
    method = Ditto(lam=lams, after=after, solver=FedAvg(**MINI), **MINI)
    models = live(run(mlp, validated, method, **settings)).store.leaves["v"]
    for c, lam in enumerate(lams):
        alone = live(run(mlp, validated, Ditto(lam=lam, after=after, solver=FedAvg(**MINI), **MINI), **settings))
        assert far(models[:, c], alone.store.leaves["v"]) <= 1e-12
    assert far(models[:, 0], models[:, 3]) > 1e-2


def test_every_candidates_gradients_are_counted(validated: FederatedData, linear: Task) -> None:
    done = run(linear, validated, ditto(lam=(0.1, 1.0, 2.0)))
    assert column(done, "gradients") == [7 * (3 + 3 * 4)] * ROUNDS


def test_without_validation_data_everyone_takes_the_middle_lambda(data: FederatedData, linear: Task) -> None:
    chosen = run(linear, data, ditto(lam=(0.1, 1.0, 2.0)))
    assert far(personal(chosen), personal(run(linear, data, ditto(lam=1.0)))) <= 1e-12
    assert column(chosen, "lam=1") == [7] * ROUNDS


@PARTICIPATION
def test_what_travels_and_what_is_computed_in_fine_tuning(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool
) -> None:
    """A client hears w* once, when it begins; nothing goes up. The solver rests, and before it v does."""
    settings = who(cohort, everyone)
    done = run(linear, data, ditto(lam=0.8, after=3), **settings)
    busy = 7 if everyone else cohort
    assert column(done, "gradients") == [busy * 3] * 3 + [busy * 4] * 3
    told = [set[int]()]
    for t in (4, 5, 6):
        told.append(told[-1] | set(oracle(cohort, everyone).who(t)[1]))
    begin = [len(now) - len(before) for before, now in pairwise(told)]
    assert column(done, "bytes_down") == [15 * 8 * n for n in [busy] * 3 + begin]
    alone = run(linear, data, FedAvg(lr=0.3, steps=3, batch=None), **settings | {"rounds": 3})
    assert column(done, "bytes_up") == column(alone, "bytes_up") + [0] * 3
    assert column(done, "received") == [cohort] * 3 + [0] * 3


def test_nothing_is_lost_where_nothing_is_sent(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, ditto(after=3), stragglers=1.0)
    late = [(finished_share(SEED, t, torch.arange(7), 1.0) * 3).ceil() < 3 for t in (1, 2, 3)]  # of three steps
    assert column(done, "lost") == [int(few.sum()) for few in late] + [0] * 3 and sum(map(sum, late)) > 9


@pytest.mark.few(3)
@pytest.mark.parametrize(("everyone", "stragglers"), [(False, 0.0), (True, 0.6)])
@pytest.mark.parametrize("aggregator", ["mean", Middle()], ids=["mean", "median"])
@pytest.mark.parametrize("solver", [FedAvg(**MINI), FedProx(mu=0.5, **MINI)], ids=["fedavg", "fedprox"])
def test_the_shared_model_of_fine_tuning_is_the_solvers_with_any_aggregator(
    data: FederatedData, mlp: Task, solver: Method, aggregator: Any, stragglers: float, everyone: bool
) -> None:
    settings = who(4, everyone) | {"stragglers": stragglers, "aggregator": aggregator}
    for after, rounds in ((4, 4), (None, ROUNDS)):
        alone = live(run(mlp, data, solver, **settings | {"rounds": rounds})).shared()[0]
        over = Ditto(after=after, solver=solver, **MINI)
        assert far(live(run(mlp, data, over, **settings)).shared()[0], alone) <= 1e-12
        assert far(alone, mlp.start()) > 1e-2


@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_fine_tuning_with_lambda_0_is_local_training_from_the_solvers_model(
    data: FederatedData, mlp: Task, stragglers: float
) -> None:
    """The minibatches too: those of Local in the same rounds, which here begin after the solver's."""
    settings: dict[str, Any] = {"stragglers": stragglers, "rounds": 3}
    method = Ditto(lam=0.0, after=2, solver=FedAvg(**MINI), **MINI)
    w = live(run(mlp, data, FedAvg(**MINI), **settings | {"rounds": 2})).shared()[0]

    class FromTheThird(Local):
        def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
            if local.round < 3:
                return {}, {"v": w.expand(len(local.clients), -1)}
            return super().client(down, state, local)

    local = personal(run(mlp, data, FromTheThird(**MINI), **settings))
    assert far(personal(run(mlp, data, method, **settings)), local) <= 1e-12
    assert far(local, w) > 1e-2


@pytest.mark.parametrize("after", [None, 3])
def test_ditto_tends_to_its_global_model_as_lambda_grows(data: FederatedData, mlp: Task, after: int | None) -> None:
    """At the rate 1 / (1 + lambda), v - w is of the order 1 / lambda; w is the model that the round began with."""
    solver, rounds = FedAvg(**MINI), 5
    heard = live(run(mlp, data, solver, rounds=after or rounds - 1)).shared()[0]
    gaps = []
    for lam in (1e2, 1e4, 1e6):
        method = Ditto(lam=lam, lr=1 / (1 + lam), steps=5, batch=3, after=after, solver=solver)
        gaps.append(far(personal(run(mlp, data, method, rounds=rounds)), heard.expand(7, -1)))
    assert gaps[0] < 0.05 and gaps[1] < 0.015 * gaps[0] and gaps[2] < 0.015 * gaps[1], gaps


@pytest.mark.few(1)
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
    assert far(live(done).shared()[0], w) < 1e-6
    assert far(personal(done), v) < 1e-6
    assert far(v, w[None]) > 0.1, "the solutions differ from the shared one"


def batchnorm() -> Task:
    torch.manual_seed(4)
    return Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())


@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_running_statistics_go_from_the_shared_model_to_the_fine_tuned_one(
    data: FederatedData, validated: FederatedData, buffers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4, 6)], classes=3)
    task = Task(batchnorm().model, buffers=buffers)
    solver = FedAvg(lr=0.1, steps=3, batch=None)
    with monkeypatch.context() as patched:  # a run that ends before the fine-tuning is refused otherwise
        patched.setattr(Ditto, "check_run", lambda *_: None)
        done = live(run(task, four, Ditto(after=4, solver=solver, **FULL), rounds=3))
    x, statistics = done.personal(done.everyone)
    alone = live(run(task, four, solver, rounds=3))
    assert far(x, alone.shared()[0].expand(4, -1)) <= 1e-12
    assert far(statistics, alone.personal(alone.everyone)[1]) <= 1e-12
    # Tuned at the smallest rate: its model stays, its statistics move on from those of the shared model.
    tuned = live(run(task, four, Ditto(after=3, solver=solver, lr=1e-12, steps=1, batch=None), rounds=4))
    after = tuned.personal(tuned.everyone)[1]
    hidden = [(four.train.client(k)[0] @ x[k][:20].view(5, 4).T + x[k][20:25]) for k in range(4)]
    means = torch.stack([h.mean(0) for h in hidden])
    assert far(after[:, :5], 0.9 * statistics[:, :5] + 0.1 * means) <= 1e-9
    with pytest.raises(
        SettingError, match=r"Ditto\.lam = \(0\.1, 1\.0\): it must be one number for a model with run"
    ):
        run(task, four, Ditto(lam=(0.1, 1.0), solver=solver, **FULL))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": ()}, r"Ditto\.lam = \(\): it must be a number, or several that rise"),
        ({"lam": (1.0, 0.1)}, r"Ditto\.lam = \(1\.0, 0\.1\): it must be a number, or several that rise"),
        ({"lam": (-1.0, 0.1)}, r"Ditto\.lam = \(-1\.0, 0\.1\): it must be zero or more"),
        ({"after": 0}, r"Ditto\.after = 0: it must be a positive number of rounds, or nothing"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Ditto(**settings)


def test_candidates_come_from_a_settings_file() -> None:
    method = build("methods", {"name": "ditto", "lam": [0.05, 0.1, 0.2], "after": 3})
    assert method == Ditto(lam=(0.05, 0.1, 0.2), after=3)
    assert build("methods", describe(method)) == method
