"""Ditto's federations are as its paper and script say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.datasets import DATASETS
from descant.datasets.sets.ditto import DittoShares
from descant.errors import SettingError


def test_devices_hold_five_classes_in_a_row_and_as_much_to_test() -> None:
    targets = np.tile(np.arange(10), 7000)  # 60,000 to train, 10,000 to test
    hands = DittoShares(clients=500, test_from=60_000).assign(targets, seed=0)
    assert len(hands) == 500
    for k, hand in enumerate(hands):
        for part in (hand[hand < 60_000], hand[hand >= 60_000]):
            assert set(targets[part]) == {(k + j) % 10 for j in range(5)}
        assert len(set(hand.tolist())) == len(hand)  # nothing twice in one device
    train = np.array([(hand < 60_000).sum() for hand in hands])
    test = np.array([(hand >= 60_000).sum() for hand in hands])
    assert 60_000 <= train.sum() <= 60_000 + 500 * 5  # the sizes add up to all, plus less than one a class
    assert (np.abs(test - train / 6) <= 5 + 5 / 6).all()
    assert train.max() > 8 * train.min()  # a heavy tail


def test_fashion_is_standardised_pixel_by_pixel_and_tested_on_official_pictures(
    tmp_path: Path, write_idx: Callable[..., Path]
) -> None:
    rng = np.random.default_rng(10)
    train, test = rng.integers(0, 200, (600, 28, 28)), rng.integers(50, 256, (100, 28, 28))
    train[:, 0, 0] = test[:, 0, 0] = 9  # a pixel that does not vary
    for part, pictures in (("train", train), ("t10k", test)):
        write_idx(tmp_path / "fashion-mnist" / f"{part}-images-idx3-ubyte.gz", pictures)
        write_idx(tmp_path / "fashion-mnist" / f"{part}-labels-idx1-ubyte.gz", np.arange(len(pictures)) % 10)
    data = DATASETS["ditto-fashion"](clients=20, root=tmp_path)
    expected = [(values - train.mean(0)) / (train.std(0) + 0.001) for values in (train, test)]
    for part, known in (("train", expected[0]), ("test", expected[1])):
        distances = torch.cdist(data.part(part).inputs.flatten(1).double(), torch.from_numpy(known).flatten(1))
        assert float(distances.min(1).values.max()) < 1e-2  # each is one of them, and of that part
    assert ((data.counts() > 0).sum(1) <= 5).all()
    with pytest.raises(SettingError, match="clients = 0"):
        DATASETS["ditto-fashion"](clients=0, root=tmp_path)


def test_points_scatter_by_tau_and_looks_by_sigma() -> None:
    data = DATASETS["point-estimation"](
        clients=400, samples=50, tau=0.5, sigma=2.0, malicious=200, tau_a=3.0, theta=7.0
    )
    v = data.test.targets.double()
    assert data.train.inputs.eq(1).all() and data.test.sizes.tolist() == [1] * 400
    assert abs(float(v[200:].std()) - 0.5) < 0.06 and abs(float(v[:200].std()) - 3) < 0.4
    assert abs(float(v[200:].mean()) - 7) < 0.15
    looks = data.train.targets.double().view(400, 50)
    noise = looks - v[:, None]
    assert abs(float(noise.std()) - 2) < 0.05 and abs(float(noise.mean())) < 0.06
    assert (
        DATASETS["point-estimation"](clients=3).train.targets.tolist()
        == DATASETS["point-estimation"](clients=5).train.targets[: 3 * 20].tolist()
    )


@pytest.mark.parametrize("wrong", [{"sigma": -1.0}, {"clients": 0}, {"tau": float("nan")}, {"malicious": 21}])
def test_other_settings_are_refused(wrong: dict[str, float]) -> None:
    [(field, value)] = wrong.items()
    with pytest.raises(SettingError, match=f"point-estimation: {field} = {value}"):
        DATASETS["point-estimation"](**wrong)


@pytest.mark.slow
def test_the_real_fashion_partition(real: Callable[[str], Path]) -> None:
    real("fashion-mnist")
    data = DATASETS["ditto-fashion"]()
    assert len(data) == 500
    assert 60_000 <= int(data.train.sizes.sum() + data.valid.sizes.sum()) <= 62_500
