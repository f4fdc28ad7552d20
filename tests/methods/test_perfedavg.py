"""Per-FedAvg: the meta-gradient, with its Hessian term and without, and what a client deploys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, PerFedAvg
from tests.methods.runs import ROUNDS, N, cohort_of, column, deployed, far, run, shared


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hessian", ["free", "none"])
@pytest.mark.parametrize("guards", [{}, {"clip": 0.3, "weight_decay": 0.05}], ids=str)
def test_it_is_algorithm_1_client_by_client(
    data: FederatedData,
    linear: Task,
    slope: Any,
    hessian: Any,
    weighted: bool,
    cohort: int,
    guards: dict[str, float],
) -> None:
    alpha, delta = 0.3, 1e-2
    settings: dict[str, Any] = {"alpha": alpha, "delta": delta, "hessian": hessian, "weighted": weighted}
    method = PerFedAvg(lr=0.2, steps=3, batch=None, adapt=2, **settings, **guards)
    done = run(linear, data, method, cohort=cohort)
    w, sizes = linear.start().numpy(), data.train.sizes.tolist()
    for t in range(1, ROUNDS + 1):
        chosen = cohort_of(t, cohort)
        n = {k: sizes[k] if weighted else 1 for k in chosen}
        update = np.zeros_like(w)
        for k in chosen:
            x = w
            for _ in range(3):
                g = slope(k, x - alpha * slope(k, x))
                if hessian == "free":
                    g = g - alpha * (slope(k, x + delta * g) - slope(k, x - delta * g)) / (2 * delta)
                if guards and np.sqrt(g @ g) > 0.3:
                    g = g * 0.3 / np.sqrt(g @ g)
                x = x - 0.2 * (g + guards.get("weight_decay", 0.0) * x)
            update += n[k] / sum(n.values()) * (x - w)
        w = w + update
    assert far(shared(done), w) <= 1e-10
    personal = []
    for k in range(N):
        x = w - alpha * slope(k, w)
        personal.append(x - alpha * slope(k, x))
    assert far(deployed(done), np.stack(personal)) <= 1e-10
    assert done.history.rounds[0]["gradients"] == cohort * 3 * (4 if hessian == "free" else 2)
    assert set(column(done, "bytes_up")) == {cohort * (15 * 8 + 4 * weighted)}
    assert set(column(done, "bytes_down")) == {cohort * 15 * 8}


def meta_gradients(task: Task, data: FederatedData, k: int, alpha: float) -> tuple[Tensor, Tensor]:
    """The gradient of f_k(w - alpha grad f_k(w)) at the start, by autograd through the gradient; and without it."""
    X, y = data.train.client(k)

    def loss(x: Tensor) -> Tensor:
        return nn.functional.cross_entropy(task.apply(x, torch.zeros(0), X)[0], y)

    w = task.start().requires_grad_()
    inner = torch.autograd.grad(loss(w), w, create_graph=True)[0]
    ahead = w - alpha * inner
    first_order = torch.autograd.grad(loss(ahead), ahead, retain_graph=True)[0]
    return torch.autograd.grad(loss(ahead), w)[0], first_order


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_the_hessian_free_step_is_autograds_and_the_first_order_one_drops_the_hessian(
    data: FederatedData, mlp: Task, mode: Any
) -> None:
    """With one client in the cohort, the first round is one step of that client."""
    alpha, lr = 0.5, 0.1
    how: dict[str, Any] = {"lr": lr, "steps": 1, "batch": None, "alpha": alpha, "delta": 1e-4}
    for seed in range(2):
        (k,) = cohort_of(1, 1, seed=seed)
        full, first_order = meta_gradients(mlp, data, k, alpha)
        settings: dict[str, Any] = {"rounds": 1, "cohort": 1, "seed": seed, "mode": mode}
        free, none = (
            (mlp.start() - shared(run(mlp, data, PerFedAvg(**how, hessian=h), **settings))) / lr
            for h in ("free", "none")
        )
        assert far(free, full) <= 1e-7
        assert far(none, first_order) <= 1e-12
        assert far(full, first_order) > 1e-2, "the Hessian matters here"


def test_the_error_of_the_difference_falls_with_the_square_of_delta(data: FederatedData, mlp: Task) -> None:
    (k,) = cohort_of(1, 1, seed=0)
    full, _ = meta_gradients(mlp, data, k, 0.5)
    errors = []
    for delta in (0.4, 0.2, 0.1):
        method = PerFedAvg(lr=0.1, steps=1, batch=None, alpha=0.5, delta=delta)
        moved = (mlp.start() - shared(run(mlp, data, method, rounds=1, cohort=1, seed=0))) / 0.1
        errors.append(far(moved, full))
    for coarse, fine in pairwise(errors):
        assert 3.5 < coarse / fine < 4.5


@pytest.mark.few(1)
@pytest.mark.parametrize("hessian", ["free", "none"])
def test_with_alpha_0_it_is_fedavg(data: FederatedData, mlp: Task, hessian: Any) -> None:
    work: dict[str, Any] = {"lr": 0.2, "steps": 3, "batch": None, "weighted": False}
    meta = run(mlp, data, PerFedAvg(alpha=0.0, hessian=hessian, **work), cohort=4, stragglers=0.5)
    plain = run(mlp, data, FedAvg(**work), cohort=4, stragglers=0.5)
    assert far(shared(meta), shared(plain)) <= 1e-12
    assert far(deployed(meta), shared(plain).expand(N, -1)) <= 1e-12


def test_the_gradients_of_a_step_are_of_minibatches_of_their_own(data: FederatedData, mlp: Task) -> None:
    """With alpha = 0 only the second minibatch matters: another one than FedAvg's, for clients with several."""
    work: dict[str, Any] = {"lr": 0.2, "steps": 1, "batch": 3, "weighted": False}
    differ = []
    for seed in range(6):
        (k,) = cohort_of(1, 1, seed=seed)
        settings: dict[str, Any] = {"rounds": 1, "cohort": 1, "seed": seed}
        meta = shared(run(mlp, data, PerFedAvg(alpha=0.0, **work), **settings))
        plain = shared(run(mlp, data, FedAvg(**work), **settings))
        if data.train.sizes[k] <= 3:
            assert far(meta, plain) <= 1e-12
        else:
            differ.append(far(meta, plain) > 1e-6)
    assert sum(differ) >= 3


@pytest.mark.parametrize("hessian", ["free", "none"])
def test_each_factor_is_of_the_minibatch_that_the_paper_says(hessian: Any) -> None:
    """Three quadratics in the place of three minibatches: (I - alpha H'') g' at w - alpha g, in closed form."""
    generator = torch.Generator().manual_seed(2)
    H = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
    H = H @ H.mT
    g = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 4, generator=generator, dtype=torch.float64)

    def grad(x: Tensor, /, *rows: Tensor, objective: Any = None, draw: int = 0) -> Tensor:
        return x @ H[draw] - g[draw]

    expected = (x - 0.1 * (x @ H[0] - g[0])) @ H[1] - g[1]
    if hessian == "free":
        expected = expected - 0.1 * expected @ H[2]
    moved = PerFedAvg(alpha=0.1, lr=0.5, hessian=hessian).step(x, grad, x)
    assert far(moved.slope, expected) <= 1e-10 and far(moved.x, x - 0.5 * expected) <= 1e-10


def test_what_is_deployed_follows_from_training_data_alone(data: FederatedData, mlp: Task) -> None:
    parts = [data.train.client(k) for k in range(N)]
    other = [(X.flip(0) * 5, (y + 1) % 3) for X, y in parts]
    models = []
    for held_out in (parts, other):
        clients = [{"train": p, "valid": h, "test": h} for p, h in zip(parts, held_out, strict=True)]
        split = FederatedData.from_arrays(clients, classes=3)
        models.append(deployed(run(mlp, split, PerFedAvg(lr=0.1, alpha=0.3, steps=2, batch=2))))
    assert far(*models) == 0


def test_running_statistics_go_along(data: FederatedData) -> None:
    """A client deploys the shared model after one step: the statistics of its own data moved by one minibatch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    several = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4)], classes=3)
    done = run(Task(module), several, PerFedAvg(lr=0.1, alpha=0.2, steps=2, batch=None), rounds=2)
    for k in range(3):
        model = done.shared().train()
        X, y = several.train.client(k)
        nn.functional.cross_entropy(model(X), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.2 * p.grad  # type: ignore[operator]
        found = done.personal(k).state_dict()
        for name, value in model.state_dict().items():
            assert "num_batches" in name or far(found[name], value) <= 1e-10, name


def test_settings_that_make_no_sense_are_refused() -> None:
    for field, value in {"alpha": -1.0, "delta": 0.0, "adapt": 0, "hessian": "exact"}.items():
        with pytest.raises(SettingError, match=rf"PerFedAvg\.{field} = "):
            PerFedAvg(**{field: value})
    with pytest.raises(SettingError, match=r"Ditto\.solver"):
        Ditto(solver=PerFedAvg())
