"""Fed+'s federations are as its section 5 says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.datasets import DATASETS
from descant.errors import SettingError

RNG = np.random.default_rng(9)


def originals(inputs: torch.Tensor) -> list[float]:
    return (inputs[:, 0, 0, 0] * 255).round().tolist()


@pytest.mark.parametrize(("clients", "negatives"), [(10, 1), (50, 10)])
def test_mnist_robust_has_negatives_at_a_tenth_or_a_fifth_of_the_parties(
    tmp_path: Path, write_mnist: Callable[..., Path], clients: int, negatives: int
) -> None:
    root = write_mnist(tmp_path)
    data, plain = (DATASETS["mnist-robust"](clients=clients, root=root, **kw) for kw in ({}, {"negative": 0.0}))
    flipped = 0
    for k in range(clients):
        pairs = [(data.part(p).client(k)[0], plain.part(p).client(k)[0]) for p in ("train", "valid", "test")]
        whole, before = (torch.cat(values) for values in zip(*pairs, strict=True))
        same, negative = torch.allclose(whole, before), torch.allclose(whole, 1 - before)
        assert same != negative
        flipped += negative
    assert flipped == negatives
    sizes = data.train.sizes + data.valid.sizes
    assert (data.test.sizes - sizes).abs().max() <= 1 and int((sizes + data.test.sizes).sum()) == 250


def test_mnist_personal_adds_noise_to_two_digits_a_party(tmp_path: Path, write_mnist: Callable[..., Path]) -> None:
    root = write_mnist(tmp_path)
    data, robust = DATASETS["mnist-personal"](root=root), DATASETS["mnist-robust"](root=root)
    assert data.name == "mnist-personal" and data.settings["scale"] == 0.5
    noises, chosen = [], set()
    for k in range(10):
        touched = set()
        for part in ("train", "valid", "test"):
            (x, y), (before, labels) = data.part(part).client(k), robust.part(part).client(k)
            assert torch.equal(y, labels)
            moved = (x != before).flatten(1).any(1)
            touched |= set(y[moved].tolist())
            assert all((y[~moved] != label).all() for label in touched)
            noises.append((x - before)[moved].flatten())
        assert len(touched) <= 2
        chosen.add(tuple(sorted(touched)))
    noise = torch.cat(noises)
    assert len(chosen) > 3
    assert abs(float(noise.abs().mean()) - 0.5) < 0.02  # E|Laplace(b)| = b
    assert abs(float(noise.std()) - 0.5 * 2**0.5) < 0.03
    again = DATASETS["mnist-personal"](root=root)
    assert torch.equal(again.train.inputs, data.train.inputs)
    with pytest.raises(SettingError, match="scale = -1"):
        DATASETS["mnist-personal"](scale=-1.0, root=root)


def test_fedplus_mnist_is_one_digit_a_party_by_a_power_law(
    tmp_path: Path, write_mnist: Callable[..., Path]
) -> None:
    data = DATASETS["fedplus-mnist"](clients=20, test=0.0, valid=0.0, root=write_mnist(tmp_path, train=950))
    assert ((data.counts() > 0).sum(1) == 1).all() and int(data.train.sizes.sum()) == 1000
    assert data.train.sizes.max() > 1.5 * data.train.sizes.min()


def test_fedplus_emnist_is_the_letters_a_to_j_five_a_party(tmp_path: Path, write_idx: Callable[..., Path]) -> None:
    count = 62 * 30
    labels = np.arange(count) % 62
    for part in ("train", "test"):
        stem = f"emnist-byclass-{part}"
        pictures = np.broadcast_to(labels[:, None, None], (count, 28, 28))
        write_idx(tmp_path / "emnist" / f"{stem}-images-idx3-ubyte.gz", pictures)
        write_idx(tmp_path / "emnist" / f"{stem}-labels-idx1-ubyte.gz", labels)
    data = DATASETS["fedplus-emnist"](clients=20, root=tmp_path)
    assert len(data) == 20 and data.classes == 10 and ((data.counts() > 0).sum(1) == 5).all()
    assert originals(data.train.inputs) == [float(36 + label) for label in data.train.targets.tolist()]


def test_the_regression_has_the_papers_moments() -> None:
    data = DATASETS["fedplus-regression"](clients=10, samples=4000, dim=100, test=0.0, valid=0.0)
    std = np.array([(j % 50 + 1) ** -0.55 for j in range(100)])  # j counts from 0 here, from 1 in the paper
    weights, means = [], []
    for k in range(10):
        x, y = (values.double().numpy() for values in data.train.client(k))
        np.testing.assert_allclose(x.std(0), std, rtol=0.08)
        w, residual, *_ = np.linalg.lstsq(x, y, rcond=None)
        assert abs(residual[0] / (4000 - 100) - 2) < 0.25  # the variance of the noise
        weights.append(w)
        means.append(x.mean(0))
    shared = np.stack(weights[:-1])
    assert abs(np.stack(means).var() - 0.5) < 0.08
    assert abs((shared - shared.mean(0)).std() - 0.5 * 2**0.5) < 0.1  # Laplace(0.5) around one vector
    assert abs(shared.mean(0).var() - 5) < 2 and abs(weights[-1].var() - 50) < 20


def test_the_regression_is_ten_parties_of_a_hundred_samples_half_of_them_tested_on() -> None:
    data = DATASETS["fedplus-regression"](valid=0.0)
    assert len(data) == 10 and data.input_shape == (1000,) and data.classes is None
    assert data.train.sizes.tolist() == data.test.sizes.tolist() == [50] * 10
    assert data.train.inputs.isfinite().all()
    with pytest.raises(SettingError, match="dim = 0"):
        DATASETS["fedplus-regression"](dim=0)
