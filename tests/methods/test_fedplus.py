"""Fed+: the rows of its Table 1 are settings of one method, and what else it promises.

Minibatches are addressed by the model that is trained: Fed+ trains personal models, so that it sees those of local
training. Against methods that train a shared model, all local data are taken at each step.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task, resume, simulate
from descant.aggregators import Aggregator, CoordinateMedian, GeometricMedian, Mean
from descant.context import Context
from descant.coupling import Indicator, L1Norm, L2Norm, Layer, Penalty, Squared, Zero
from descant.engine.cohort import sample
from descant.errors import SettingError
from descant.methods import FedAvg, FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus, FedProx, Local, Method
from tests import held
from tests.held import personal, shared
from tests.interrupted import assert_same, interrupt
from tests.methods.runs import ROUNDS
from tests.methods.runs import four as run

FULL: dict[str, Any] = {"steps": 3, "batch": None}
COHORT = pytest.mark.parametrize("cohort", [None, 4])
STRAGGLERS = pytest.mark.parametrize("stragglers", [0.0, 0.6])
VARIANTS = pytest.mark.parametrize("variant", [FedAvgPlus, FedGeoMedPlus, FedCoMedPlus], ids=lambda v: v.name)


def same(a: Tensor, b: Tensor, task: Task, within: float = 1e-10) -> None:
    assert float((a - b).abs().max()) <= within
    assert float((b - task.start()).abs().max()) > 1e-2, "training went somewhere"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cohort", "stragglers", "trainers"), [(None, 0.6, "cohort"), (4, 0.0, "cohort"), (4, 0.6, "everyone")]
)
@pytest.mark.parametrize("penalty", [Squared(), L2Norm(), Indicator()], ids=lambda psi: psi.name)
def test_with_sigma_0_it_is_local_training(
    data: FederatedData, mlp: Task, penalty: Penalty, cohort: int | None, stragglers: float, trainers: str
) -> None:
    settings = {"cohort": cohort, "stragglers": stragglers, "trainers": trainers}
    work: dict[str, Any] = {"lr": 0.1, "epochs": 2, "batch": 3, "clip": 0.5, "weight_decay": 0.01}
    plus = run(mlp, data, FedPlus(penalty=penalty, sigma=0.0, lam=0.0, **work), **settings)
    same(personal(plus), personal(run(mlp, data, Local(**work), **settings)), mlp)


@pytest.mark.few(1)
@pytest.mark.parametrize(("cohort", "stragglers"), [(None, 0.0), (4, 0.6)])
@pytest.mark.parametrize("penalty", [Squared(), Indicator(), Zero()], ids=lambda psi: psi.name)
def test_with_sigma_0_started_at_the_mean_it_is_fedavg(
    data: FederatedData, mlp: Task, penalty: Penalty, cohort: int | None, stragglers: float
) -> None:
    settings = {"cohort": cohort, "stragglers": stragglers}
    plus = FedPlus(penalty=penalty, sigma=0.0, lam=1.0, parties="cohort", lr=0.2, **FULL)
    avg = FedAvg(weighted=False, stragglers="keep", lr=0.2, **FULL)
    same(shared(run(mlp, data, plus, **settings)), shared(run(mlp, data, avg, **settings)), mlp)


@pytest.mark.few(1)
@COHORT
@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize(
    ("penalty", "median"),
    [(L2Norm(), GeometricMedian), (L1Norm(), CoordinateMedian)],
    ids=["rfa", "coordinate-median"],
)
def test_with_sigma_0_started_at_the_median_it_is_rfa_or_the_coordinate_wise_median(
    data: FederatedData, mlp: Task, cohort: int | None, delta: float, penalty: Penalty, median: type[Any]
) -> None:
    """They are FedAvg with another aggregator, exact or smoothed by delta."""
    plus = FedPlus(penalty=penalty, delta=delta, sigma=0.0, lam=1.0, parties="cohort", lr=0.2, tol=1e-13, **FULL)
    robust = FedAvg(weighted=False, lr=0.2, **FULL)
    aggregator = median(delta=delta, tol=1e-13)
    one = shared(run(mlp, data, plus, cohort=cohort))
    other = shared(run(mlp, data, robust, cohort=cohort, aggregator=aggregator))
    same(one, other, mlp)
    assert float((other - shared(run(mlp, data, robust, cohort=cohort))).abs().max()) > 1e-4


@pytest.mark.few(1)
@COHORT
@STRAGGLERS
def test_with_an_indicator_started_at_the_mean_it_is_fedprox_at_the_rate_eta_kappa(
    data: FederatedData, mlp: Task, cohort: int | None, stragglers: float
) -> None:
    eta, mu = 0.2, 1.5
    settings = {"cohort": cohort, "stragglers": stragglers}
    plus = FedPlus(penalty=Indicator(), sigma=mu, lam=1.0, parties="cohort", lr=eta, **FULL)
    prox = FedProx(mu=mu, weighted=False, lr=eta / (1 + mu * eta), **FULL)
    same(shared(run(mlp, data, plus, **settings)), shared(run(mlp, data, prox, **settings)), mlp)


@pytest.mark.few(1)
@COHORT
@pytest.mark.parametrize(
    ("variant", "penalty"),
    [(FedAvgPlus, Squared()), (FedGeoMedPlus, L2Norm()), (FedCoMedPlus, L1Norm())],
    ids=["fedavg+", "fedgeomed+", "fedcomed+"],
)
def test_a_variant_is_fed_plus_with_its_penalty(
    data: FederatedData, mlp: Task, cohort: int | None, variant: type[FedPlus], penalty: Penalty
) -> None:
    work: dict[str, Any] = {"lr": 0.2, "epochs": 2, "batch": 3, "sigma": 2.0, "delta": 0.05}
    one, other = (run(mlp, data, m, cohort=cohort) for m in (variant(**work), FedPlus(penalty=penalty, **work)))
    assert torch.equal(personal(one), personal(other)) and torch.equal(shared(one), shared(other))
    same(personal(one), personal(other), mlp)
    assert variant().lam == 0 and variant().delta == 0.1
    assert 0.9 <= 1 / (1 + variant().sigma * variant().lr) <= 0.999, "what the paper recommends for kappa"


@pytest.mark.few(3)
@VARIANTS
@pytest.mark.parametrize("aggregator", [Mean(), CoordinateMedian(), GeometricMedian()], ids=lambda a: a.name)
@pytest.mark.parametrize("parties", ["all", "cohort"])
def test_the_runs_aggregator_may_take_the_place_of_eq_7(
    data: FederatedData, linear: Task, variant: type[FedPlus], aggregator: Aggregator, parties: Any
) -> None:
    """It combines the models that eq. (7) would combine."""
    method = variant(aggregation="run", parties=parties, sigma=2.0, lr=0.2, **FULL)
    done = run(linear, data, method, aggregator=aggregator)
    heard = personal(done) if parties == "all" else personal(done)[sample(11, ROUNDS, 4, torch.ones(len(data)))]
    assert torch.equal(shared(done), aggregator({"w": heard})["w"])


def test_the_silent_count_with_the_model_that_they_sent_last(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, FedAvgPlus(lr=0.2, **FULL), trainers="everyone", rounds=3)
    W, trained = held.by_server(done)["W"], personal(done)
    torch.testing.assert_close(shared(done), W.mean(0))
    stale = (W - trained).abs().amax(1) > 1e-6
    assert 0 < int(stale.sum()) < len(data), "some were heard in the last round, and some have trained on since"


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [L2Norm, L1Norm])
def test_a_round_says_how_well_its_aggregate_was_solved(
    data: FederatedData, mlp: Task, kind: type[Penalty]
) -> None:
    rough, fine = (
        simulate(
            mlp, data, FedPlus(penalty=kind(), lr=0.5, cap=cap, **FULL), rounds=4, mode="vmap", evaluate=4
        ).history.rounds
        for cap in (1, 1000)
    )
    assert max(row["aggregation_residual"] for row in rough) > 1e-6
    assert {row["aggregation_iterations"] for row in rough} <= {0.0, 1.0}
    assert all(row["aggregation_residual"] <= 1e-10 for row in fine)


def test_every_layer_has_the_aggregate_of_its_penalty(data: FederatedData, mlp: Task) -> None:
    """The hybrid of section 4.4: a mean below, a geometric median of the last layer, coordinates for its bias."""
    layers = (Layer("2", L2Norm(), 0.0), Layer("2.bias", L1Norm(), 0.0))
    done = run(mlp, data, FedAvgPlus(layers=layers, lr=0.3, **FULL), cohort=None)
    W, w, at = personal(done), shared(done), mlp.layout.slices
    torch.testing.assert_close(w[: at["2.weight"].start], W[:, : at["2.weight"].start].mean(0))
    weight = GeometricMedian()({"w": W[:, at["2.weight"]]})["w"]
    torch.testing.assert_close(w[at["2.weight"]], weight, rtol=0, atol=1e-9)
    torch.testing.assert_close(w[at["2.bias"]], CoordinateMedian()({"w": W[:, at["2.bias"]]})["w"])


def test_layers_with_the_same_penalty_and_delta_in_each_coordinate_are_one(data: FederatedData, mlp: Task) -> None:
    """l1 is a sum over coordinates: cut up by layers, it is the same."""
    work: dict[str, Any] = {"lr": 0.3, "sigma": 2.0, "delta": 0.02, "tol": 1e-13, **FULL}
    layers = (Layer("0", L1Norm(), 0.02), Layer("2.bias", L1Norm(), 0.02))
    one, other = (run(mlp, data, FedCoMedPlus(layers=cut, **work)) for cut in ((), layers))
    same(personal(one), personal(other), mlp)
    same(shared(one), shared(other), mlp)


def test_a_layer_that_the_model_lacks_is_named(data: FederatedData, mlp: Task) -> None:
    method = FedPlus(layers=(Layer("2.weigth", L1Norm()),))
    with pytest.raises(SettingError, match=r"no layer called '2\.weigth'\. Did you mean '2\.weight'"):
        simulate(mlp, data, method, rounds=1)
    with pytest.raises(SettingError, match="no layer called"):  # before anything is trained
        method.server_start(Context(0, 0, 7, mlp.layout, mlp.start()))


@pytest.mark.parametrize("method", [FedPlus(), FedGeoMedPlus()], ids=lambda m: m.name)
def test_running_statistics_reach_the_shared_model(data: FederatedData, method: Method) -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    big = FederatedData.from_arrays(
        [{"train": (X.repeat(2, 1), y.repeat(2))} for X, y in map(data.train.client, range(7))], classes=3
    )
    done = simulate(task, big, method, rounds=2, mode="vmap", evaluate=2)
    norm = done.shared(round="last")[1]
    assert float(norm.running_mean.abs().max()) > 1e-2, "it was 0"


HYBRID = FedGeoMedPlus(
    **{"lr": 0.2, "epochs": 2, "batch": 3, "sigma": 2.0, "delta": 0.05}, layers=(Layer("2", L1Norm(), 0.02),)
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mode", "chunk"), [("loop", None), ("loop", 3), pytest.param("compile", 3, marks=pytest.mark.slow)]
)
def test_it_is_the_same_in_every_mode(data: FederatedData, mlp: Task, mode: str, chunk: int | None) -> None:
    """With ragged clients, partial participation, minibatches and stragglers."""
    settings = {"stragglers": 0.5, "chunk": chunk}
    one, other = (run(mlp, data, HYBRID, mode=how, **settings) for how in (mode, "vmap"))
    assert one.config["execution"]["mode"] == mode and one.config["execution"]["fallbacks"] == []
    same(personal(one), personal(other), mlp)
    same(shared(one), shared(other), mlp)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("parties", ["all", "cohort"])
def test_a_resumed_run_ends_as_the_unbroken_one(
    data: FederatedData, mlp: Task, tmp_path: Path, store: Any, parties: Any
) -> None:
    method = replace(HYBRID, parties=parties)
    how: dict[str, Any] = {"rounds": 7, "cohort": 3, "stragglers": 0.5, "evaluate": 7, "mode": "vmap"}
    how |= {"store": store, "commit": None if store == "disk" else 3}
    unbroken = simulate(mlp, data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        simulate(mlp, data, method, out=tmp_path / "run", progress=interrupt(4), **how)
    resumed = resume(tmp_path / "run", mlp, data)
    assert set(held.by_server(resumed)) == ({"w", "W"} if parties == "all" else {"w"})
    assert_same(resumed, unbroken)


FIELDS: list[tuple[str, Any, str]] = [
    ("delta", -0.1, "zero or more"),
    ("delta", float("inf"), "a finite number"),
    ("sigma", -1.0, "zero or more"),
    ("kappa", 0.0, "above 0 and at most 1, or nothing"),
    ("kappa", 1.1, "above 0 and at most 1, or nothing"),
    ("lam", 1.5, "from 0 to 1"),
    ("lam", -0.5, "from 0 to 1"),
    ("parties", "some", "'all' or 'cohort'"),
    ("aggregation", "mean", "'penalty' or 'run'"),
    ("tol", 0.0, "a positive number"),
    ("cap", 0, "a positive number"),
    ("layers", (Layer("0", L1Norm()), Layer("0", L2Norm())), "layers that differ"),
]


@pytest.mark.parametrize("kind", [FedPlus, FedAvgPlus, FedGeoMedPlus, FedCoMedPlus])
@pytest.mark.parametrize(("field", "value", "allowed"), FIELDS)
def test_a_value_out_of_range_is_refused(kind: type[FedPlus], field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{field: value})
    assert str(caught.value) == f"{kind.__name__}.{field} = {value!r}: it must be {allowed}"


def test_a_layers_delta_is_checked_too() -> None:
    with pytest.raises(SettingError, match=r"Layer\.delta = -1\.0: it must be zero or more"):
        Layer("0", L1Norm(), -1.0)
