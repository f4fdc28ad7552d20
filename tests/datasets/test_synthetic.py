"""Synthetic(alpha, beta) draws what the papers define."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from descant.data import FederatedData
from descant.datasets import fedplus_synthetic, synthetic
from descant.datasets.synthetic import TrueModel, true_model
from descant.errors import SettingError


def models(alpha: float, beta: float, clients: int = 400) -> list[TrueModel]:
    return [true_model(np.random.default_rng([0, k]), alpha, beta, 60, 10) for k in range(clients)]


def inputs_of(data: FederatedData, k: int) -> torch.Tensor:
    return torch.cat([part.client(k)[0] for part in (data.train, data.valid, data.test)])


def same(a: FederatedData, b: FederatedData, clients: int) -> bool:
    pairs = [(a.part(p).client(k), b.part(p).client(k)) for p in ("train", "valid", "test") for k in range(clients)]
    return all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in pairs)


def test_the_default_is_the_papers_size() -> None:
    data = synthetic()
    assert (len(data), data.input_shape, data.classes, data.name) == (100, (60,), 10, "synthetic")
    assert data.train.sizes.unique().tolist() == [129]
    assert data.valid.sizes.unique().tolist() == [32]
    assert data.test.sizes.unique().tolist() == [41]
    assert (data.train.inputs.dtype, data.train.targets.dtype) == (torch.float32, torch.int64)


def test_the_covariance_of_the_inputs_is_diagonal_with_j_to_the_minus_1_2() -> None:
    x = inputs_of(synthetic(1, 1, clients=1, samples=50_000), 0).double()
    covariance = torch.cov(x.T)
    expected = torch.arange(1, 61, dtype=torch.float64) ** -1.2
    assert torch.allclose(covariance.diagonal(), expected, rtol=0.05)
    correlation = torch.corrcoef(x.T) - torch.eye(60, dtype=torch.float64)
    assert correlation.abs().max() < 0.03


def test_u_is_zero_with_alpha_zero_and_has_standard_deviation_alpha_otherwise() -> None:
    # the mean of a client's 610 parameters is u_k, give or take 610^-1/2
    for alpha in (0.0, 3.0):
        u = np.array([np.concatenate([m.W.ravel(), m.b]).mean() for m in models(alpha, 0.0)])
        assert abs(u.mean()) < 4 * (alpha + 0.05) / 20
        assert np.isclose(u.std(), np.hypot(alpha, 610**-0.5), rtol=0.15)


def test_parameters_have_unit_variance_about_u() -> None:
    within = [np.concatenate([m.W.ravel(), m.b]).std() for m in models(5.0, 0.0)]
    assert np.isclose(np.mean(within), 1, rtol=0.01)


def test_input_means_are_shared_noise_of_standard_deviation_beta_and_own_noise_of_one() -> None:
    for beta in (0.0, 10.0):
        v = np.array([m.v for m in models(0.0, beta)])
        assert np.isclose(v.mean(axis=1).std(), np.hypot(beta, 60**-0.5), rtol=0.15)
        assert np.isclose(v.std(axis=1).mean(), 1, rtol=0.03)


def test_the_label_is_the_largest_logit_of_the_client_s_true_model() -> None:
    data = synthetic(1, 1, clients=3)
    for k in range(3):
        model = true_model(np.random.default_rng([0, k]), 1, 1, 60, 10)
        x, y = data.train.client(k)
        assert np.array_equal((x.double().numpy() @ model.W + model.b).argmax(axis=1), y)


def test_alpha_adds_the_same_to_all_logits_and_changes_no_label() -> None:
    assert same(synthetic(0, 1, clients=5), synthetic(100, 1, clients=5), clients=5)


def test_beta_changes_the_inputs() -> None:
    assert not same(synthetic(0, 0, clients=1), synthetic(0, 1, clients=1), clients=1)


@pytest.mark.parametrize("settings", [{}, {"balanced": False}])
def test_client_k_is_the_same_whatever_the_number_of_clients(settings: dict[str, Any]) -> None:
    assert same(synthetic(1, 1, clients=10, **settings), synthetic(1, 1, **settings), clients=10)


def test_the_same_seed_gives_the_same_data_and_another_one_other_data() -> None:
    assert same(synthetic(1, 1, clients=3), synthetic(1, 1, clients=3), clients=3)
    assert not same(synthetic(1, 1, clients=3), synthetic(1, 1, clients=3, seed=1), clients=3)


def test_unbalanced_sizes_are_100_and_a_lognormal() -> None:
    sizes = sum(part.sizes for part in parts(synthetic(balanced=False, dim=2, clients=400)))
    extra = torch.as_tensor(sizes) - 100
    assert extra.min() >= 0
    assert 40 < extra.double().median() < 75  # e^4 = 54.6
    assert extra.max() > 1000


def test_fedplus_sizes_are_50_and_a_lognormal() -> None:
    data = fedplus_synthetic()
    sizes = torch.as_tensor(sum(part.sizes for part in parts(data)))
    assert (len(data), data.input_shape, data.classes) == (30, (60,), 10)
    assert sizes.min() >= 50
    assert torch.equal(data.test.sizes, sizes - sizes * 4 // 5)


def test_fedplus_inputs_differ_between_clients_by_beta() -> None:
    spread = [inputs_of(fedplus_synthetic(), k).mean().item() for k in range(30)]
    assert 5 < np.std(spread) < 15  # beta = 10


def parts(data: FederatedData) -> list[Any]:
    return [data.train, data.valid, data.test]


def test_the_settings_are_the_arguments() -> None:
    for data, make in (
        (synthetic(1, 0.5, clients=2), synthetic),
        (fedplus_synthetic(clients=2), fedplus_synthetic),
    ):
        again = make(**json.loads(json.dumps(data.settings)))
        assert same(data, again, clients=2)


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": -1.0},
        {"beta": float("nan")},
        {"clients": 0},
        {"samples": 0},
        {"seed": -1},
        {"dim": 0},
        {"classes": 0},
    ],
)
def test_a_setting_out_of_range_is_named(bad: dict[str, Any]) -> None:
    (field,) = bad
    with pytest.raises(SettingError, match=f"synthetic: {field} = "):
        synthetic(**bad)
