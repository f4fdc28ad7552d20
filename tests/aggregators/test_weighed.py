"""Methods that live by the weights of messages, statistics that travel along, and leaves without numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.aggregators import AGGREGATORS, Aggregator, Chain, Mean
from descant.attacks import SignFlip
from descant.context import Context
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import AFL, QFFL, TERM, Ditto, FedAvg, Method
from descant.task import Layout

LOCAL: dict[str, Any] = {"steps": 1, "batch": None, "lr": 0.1}
FAIR = [QFFL(**LOCAL), AFL(**LOCAL), TERM(**LOCAL), Ditto(solver=QFFL(**LOCAL), **LOCAL)]
ALIKE = {"trimmed-mean", "krum", "multi-krum", "bulyan", "k-loss", "nnm", "bucketing"}


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    return dc.data.synthetic(clients=9, samples=30, dim=4, classes=3)


def test_who_heeds_weights_and_who_does_not() -> None:
    """Whoever says that it heeds them gives another result with them than without, and the others do not."""
    g = torch.Generator().manual_seed(1)
    rows, weights = torch.randn(9, 3, generator=g), torch.rand(9, generator=g) + 0.1
    for name, kind in AGGREGATORS.items():
        with_them, without = (combined(kind(), rows, given) for given in (weights, None))
        assert kind.weighs == (not torch.allclose(with_them, without)), name
        assert kind.weighs == (name not in ALIKE)


def combined(aggregator: Aggregator, rows: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    ctx = Context(1, 0, len(rows), Layout((), ()), torch.zeros(3)).of_server()
    mail = Mail.of({"delta": rows}, torch.arange(len(rows)), ctx)
    object.__setattr__(mail, "weights", weights)
    object.__setattr__(mail, "facts", {"loss": torch.arange(len(rows)).float()})
    return aggregator.combine(ctx, {}, mail)[1]["delta"]


@pytest.mark.parametrize("aggregator", [*sorted(ALIKE), ["nnm", "mean"], ["norm-clipping", "krum"]], ids=str)
@pytest.mark.parametrize("method", FAIR, ids=lambda method: method.name)
def test_a_fair_method_is_not_combined_without_its_weights(
    data: dc.FederatedData, method: Method, aggregator: Any
) -> None:
    with pytest.raises(SettingError, match=r"aggregator: .* takes all messages alike.*coordinate-median"):
        dc.simulate(dc.Task(dc.models.linear(data)), data, method, rounds=1, aggregator=aggregator)


def test_without_weights_to_live_by_nothing_is_refused(data: dc.FederatedData) -> None:
    task = dc.Task(dc.models.linear(data))
    for method in (QFFL(q=0.0, **LOCAL), TERM(t=0.0, **LOCAL), AFL(draw="mixture", **LOCAL), FedAvg(**LOCAL)):
        assert dc.simulate(task, data, method, rounds=1, cohort=5, aggregator="nnm").collapse is None
    assert Chain(steps=(Mean(),)).weighs


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_a_leaf_without_numbers_is_combined_to_one_without_numbers(name: str) -> None:
    ctx = Context(1, 0, 9, Layout((), ()), torch.zeros(3)).of_server()
    for order in (("delta", "empty"), ("empty", "delta")):  # the first is what is selected by
        leaves = {"delta": torch.randn(9, 3), "empty": torch.zeros(9, 0), "square": torch.zeros(9, 2, 0)}
        mail = Mail.of({key: leaves[key] for key in (*order, "square")}, torch.arange(9), ctx)
        object.__setattr__(mail, "facts", {"loss": torch.arange(9).float()})
        object.__setattr__(mail, "references", {key: torch.zeros_like(leaf[:1]) for key, leaf in leaves.items()})
        found = AGGREGATORS[name]().combine(ctx, {}, mail)[1]
        assert {key: tuple(leaf.shape) for key, leaf in found.items()} == {
            "delta": (3,),
            "empty": (0,),
            "square": (2, 0),
        }
        assert found["delta"].isfinite().all()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "aggregator", ["norm-clipping", {"name": "norm-clipping", "norm": 0.5}, "adaptive-clipping"]
)
def test_clipping_bounds_what_an_attacker_does_to_running_statistics(aggregator: Any) -> None:
    """One of seven clients sends its statistics, and its update, a million times as far the other way."""
    data = dc.data.synthetic(clients=7, samples=40, dim=4, classes=3)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    how: dict[str, Any] = {"rounds": 2, "attacks": SignFlip(tau=1e6), "malicious": [2], "mode": "vmap"}
    moved = {}
    for name, chosen in (("clipped", aggregator), ("free", "mean")):
        run = dc.simulate(dc.Task(module), data, FedAvg(**LOCAL), aggregator=chosen, **how)
        statistics = run.shared(round="last")[1]
        moved[name] = float(statistics.running_mean.abs().max())  # type: ignore[union-attr,operator]
    assert moved["free"] > 1e3 and moved["clipped"] < 10, moved
