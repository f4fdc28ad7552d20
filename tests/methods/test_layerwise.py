"""LG-FedAvg, FedPer, FedRep and FedBN: what clients keep stays with them, and the rest is averaged."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from descant import FederatedData, Task
from descant.attacks import SignFlip
from descant.codecs import Float16, TopK
from descant.errors import NoSharedModelError, SettingError
from descant.methods import FedAvg, FedBN, FedPer, FedRep, LGFedAvg, Local
from tests.methods.runs import MINI, ROUNDS, N, Vector, cohort_of, column, deployed, far, run

HEAD = np.arange(43) >= 25  # the last layer's 18 of the 43 numbers of `mlp`
FULL: dict[str, Any] = {"lr": 0.3, "steps": 3, "batch": None}
KINDS = (LGFedAvg, FedPer, FedRep, FedBN)


def loop(
    slope: Any,
    theta: Vector,
    keeps: Vector,
    sizes: list[int],
    cohort: int,
    *,
    weighted: bool,
    lr: float = 0.3,
    steps: int = 3,
    head_steps: int | None = None,
) -> Vector:
    """The papers' algorithms over clients one by one; `keeps` [d] says which numbers a client keeps."""
    w, own = theta[~keeps], [theta[keeps] for _ in sizes]
    for t in range(1, ROUNDS + 1):
        chosen = cohort_of(t, cohort)
        n = {k: sizes[k] if weighted else 1 for k in chosen}
        update = np.zeros_like(w)
        for k in chosen:
            x = np.empty_like(theta)
            x[~keeps], x[keeps] = w, own[k]
            for _ in range(head_steps or 0):
                x[keeps] -= lr * slope(k, x)[keeps]
            for _ in range(steps):
                g = slope(k, x)
                x[~keeps] -= lr * g[~keeps]
                if head_steps is None:
                    x[keeps] -= lr * g[keeps]
            own[k] = x[keeps]
            update += n[k] / sum(n.values()) * (x[~keeps] - w)
        w = w + update
    models = np.empty((len(sizes), len(theta)))
    models[:, ~keeps], models[:, keeps] = w, np.stack(own)
    return models


@pytest.mark.few(2)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("kind", "keeps", "settings"),
    [
        (LGFedAvg, ~HEAD, {}),
        (FedPer, HEAD, {}),
        (FedPer, (np.arange(43) < 20) | (np.arange(43) >= 40), {"layers": ("0.weight", "2.bias")}),
        (FedBN, ~HEAD, {"layers": ("0",)}),
        (FedRep, HEAD, {"head_steps": 5}),
    ],
    ids=["lg-fedavg", "fedper", "fedper, named", "fedbn, named", "fedrep"],
)
def test_each_is_the_loop_over_clients(
    data: FederatedData,
    mlp: Task,
    slope_mlp: Any,
    kind: Any,
    keeps: Vector,
    settings: dict[str, Any],
    weighted: bool,
    cohort: int,
) -> None:
    done = run(mlp, data, kind(**FULL, weighted=weighted, **settings), cohort=cohort)
    steps = settings.get("head_steps")
    theta, sizes = mlp.start().numpy(), data.train.sizes.tolist()
    expected = loop(slope_mlp, theta, keeps, sizes, cohort, weighted=weighted, head_steps=steps)
    assert far(deployed(done), expected) <= 1e-10
    assert far(expected, theta) > 1e-2


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [LGFedAvg, FedPer, FedBN])
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_to_keep_everything_is_local_training(data: FederatedData, mlp: Task, kind: Any, stragglers: float) -> None:
    """On the same minibatches."""
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    alone = run(mlp, data, Local(**MINI), **settings)
    done = run(mlp, data, kind(layers=("0", "2"), **MINI), **settings)
    assert far(deployed(done), deployed(alone)) <= 1e-12
    assert sum(row["bytes_down"] for row in done.history.rounds) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [True, False])
def test_to_keep_nothing_is_fedavg(data: FederatedData, mlp: Task, kind: Any, weighted: bool) -> None:
    done = run(mlp, data, kind(layers=(), weighted=weighted, **FULL), cohort=4)
    shared = run(mlp, data, FedAvg(weighted=weighted, **FULL), cohort=4).shared()
    assert far(deployed(done), parameters_to_vector(shared.parameters()).detach().expand(N, -1)) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [LGFedAvg, FedPer, FedRep])
def test_what_is_kept_is_neither_sent_nor_changed_by_others(data: FederatedData, mlp: Task, kind: Any) -> None:
    """A client that rests in the second round keeps its layers as they were, whatever the others send."""
    flips: dict[str, Any] = {"attacks": [SignFlip(tau=3.0)], "malicious": [0, 4]}
    method = kind(**MINI)
    once, later = (run(mlp, data, method, rounds=rounds, cohort=3, **flips) for rounds in (1, 2))
    keeps = ~HEAD if kind is LGFedAvg else HEAD
    gone = set(cohort_of(1, 3)) - set(cohort_of(2, 3))
    assert gone, "somebody takes part in the first round only"
    first, last = deployed(once).numpy(), deployed(later).numpy()
    for k in gone:
        assert np.array_equal(first[k][keeps], last[k][keeps])
        assert far(first[k][~keeps], last[k][~keeps]) > 1e-3
    sizes = 8 * int((~keeps).sum()), 8 * int((~keeps).sum()) + 4 * method.weighted
    for row in later.history.rounds:
        assert (row["bytes_down"], row["bytes_up"]) == (3 * sizes[0], 3 * sizes[1])


def test_the_head_of_fedrep_is_trained_before_its_body(data: FederatedData, mlp: Task) -> None:
    """In its first phase the body stays, in its second the head; gradients of both are counted."""
    method = FedRep(lr=0.3, batch=None, steps=2, head_epochs=4)
    done = run(mlp, data, method, rounds=1)
    assert done.history.rounds[0]["gradients"] == N * (4 + 2)
    assert FedRep(batch=None).head_work.epochs == 10 and FedRep().head_work.steps is None
    bodies = deployed(done)[:, ~HEAD]
    assert far(bodies, bodies[:1].expand_as(bodies)) == 0, "the body is the same for all"


@pytest.mark.parametrize("guards", [{"clip": 0.05}, {"weight_decay": 0.3}, {"momentum": 0.9}], ids=str)
def test_a_phase_of_fedrep_sees_its_own_layers(
    data: FederatedData, mlp: Task, slope_mlp: Any, guards: dict[str, Any]
) -> None:
    """One step on the head and one on the body, by hand: guards look at the layers that are trained."""
    done = run(mlp, data, FedRep(lr=0.3, steps=2, head_steps=2, batch=None, weighted=True, **guards), rounds=1)
    clip, decay, beta = (guards.get(name, 0.0) for name in ("clip", "weight_decay", "momentum"))
    theta, sizes = mlp.start().numpy(), data.train.sizes.tolist()
    w, heads = np.zeros(25), []
    for k, n in enumerate(sizes):
        x = theta.copy()
        for on in (HEAD, ~HEAD):
            move = np.zeros(int(on.sum()))
            for _ in range(2):
                g = slope_mlp(k, x)[on]
                g = g * min(1.0, clip / np.sqrt(g @ g)) if clip else g
                move = beta * move - 0.3 * (g + decay * x[on])
                x[on] += move
        heads.append(x[HEAD])
        w += n / sum(sizes) * x[~HEAD]
    found = deployed(done).numpy()
    assert far(found[:, HEAD], np.stack(heads)) <= 1e-10 and far(found[:, ~HEAD], w[None]) <= 1e-10


class Normed(nn.Sequential):
    def __init__(self) -> None:
        torch.manual_seed(4)
        super().__init__(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
        self.double()


@pytest.fixture(scope="module")
def several() -> FederatedData:
    """Five clients of 3 to 9 examples: BatchNorm needs two in a batch."""
    generator = torch.Generator().manual_seed(6)
    rows = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (3, 6, 9, 4, 5)]
    labels = [torch.randint(3, (len(X),), generator=generator) for X in rows]
    return FederatedData.from_arrays([{"train": pair} for pair in zip(rows, labels, strict=True)], classes=3)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("buffers", ["shared", "local"])
@pytest.mark.parametrize("cohort", [5, 2])
def test_fedbn_is_a_plain_torch_loop_with_batchnorm_left_out_of_the_mean(
    several: FederatedData, cohort: int, buffers: Any, mode: Any
) -> None:
    done = run(Task(Normed(), buffers=buffers), several, FedBN(**FULL), cohort=cohort, mode=mode)
    models = [Normed() for _ in range(5)]
    shared = {name: p.detach().clone() for name, p in Normed().named_parameters() if not name.startswith("1.")}
    for t in range(1, ROUNDS + 1):
        chosen = cohort_of(t, cohort, 5)
        for k in chosen:
            models[k].load_state_dict(shared, strict=False)
            optimizer = torch.optim.SGD(models[k].parameters(), lr=0.3)
            for _ in range(3):
                optimizer.zero_grad()
                X, y = several.train.client(k)
                nn.functional.cross_entropy(models[k].train()(X), y).backward()
                optimizer.step()
        shared = {
            name: torch.stack([models[k].get_parameter(name).detach() for k in chosen]).mean(0) for name in shared
        }
    for k, model in enumerate(models):
        model.load_state_dict(shared, strict=False)
        found = done.personal(k).state_dict()
        for name, value in model.state_dict().items():
            if "num_batches" not in name:
                assert far(found[name], value) <= 1e-10, name
    means = torch.stack([done.personal(k).state_dict()["1.running_mean"] for k in range(5)])
    assert far(means[0], means[2]) > 1e-3, "statistics are each client's own"
    scalars = 4 * 5 + 5 + 5 * 3 + 3
    assert set(column(done, "bytes_up")) == {cohort * 8 * scalars}
    assert set(column(done, "bytes_down")) == {cohort * 8 * scalars}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [LGFedAvg, FedPer, FedRep])
def test_running_statistics_are_kept_by_all_of_them(several: FederatedData, kind: Any) -> None:
    done = run(Task(Normed()), several, kind(**FULL))
    states = [done.personal(k).state_dict() for k in range(5)]
    assert far(states[0]["1.running_mean"], states[2]["1.running_mean"]) > 1e-3
    same = "3.weight" if kind is LGFedAvg else "0.weight"
    assert far(states[0][same], states[2][same]) == 0


def test_a_codec_acts_on_what_is_sent(data: FederatedData, mlp: Task) -> None:
    """Three of the 25 numbers that travel, and not five of the 43 that there are; their places take bits."""
    done = run(mlp, data, FedPer(weighted=False, **MINI), codec=TopK(share=0.12))
    assert all(0 < up - N * 3 * 8 < N * 8 for up in column(done, "bytes_up"))
    halved = run(mlp, data, FedPer(weighted=False, **MINI), codec=Float16(), downlink=Float16())
    assert set(column(halved, "bytes_up")) == {N * 25 * 2}
    assert set(column(halved, "bytes_down")) == {N * 25 * 2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(
    data: FederatedData, mlp: Task, kind: Any
) -> None:
    with pytest.raises(SettingError, match=r"no layer called '0\.weigth'.*Did you mean '0\.weight'.*2\.bias"):
        run(mlp, data, kind(layers=("0.weigth",)))
    with pytest.raises(SettingError, match="no layer called '1'"):
        run(mlp, data, kind(layers=("2", "1")))


def test_there_is_no_global_model(data: FederatedData, mlp: Task) -> None:
    done = run(mlp, data, FedPer(**FULL), rounds=1)
    with pytest.raises(NoSharedModelError):
        done.shared()


def test_head_work_is_steps_or_epochs() -> None:
    with pytest.raises(SettingError, match="FedRep has both head_steps and head_epochs"):
        FedRep(head_steps=1, head_epochs=1)
    with pytest.raises(SettingError, match=r"FedRep\.head_steps = 0"):
        FedRep(head_steps=0)


def test_the_layout_knows_the_last_layer_and_the_norms() -> None:
    layout = Task(Normed()).layout
    assert layout.norms == ("1.weight", "1.bias") and layout.last == ("3.weight", "3.bias")
    single = Task(nn.Linear(2, 3)).layout
    assert single.last == ("weight", "bias") and single.norms == ()
    frozen = deepcopy(Normed())
    frozen[1].weight.requires_grad_(False)
    assert Task(frozen).layout.norms == ("1.bias",)
