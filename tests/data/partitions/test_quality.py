"""Quality skew: noise that rises with the client and stays with the example."""

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.data.partitions import IID, Quality

ROWS = torch.arange(60)
CLEAN = torch.zeros(60, 28, 28)


@pytest.mark.parametrize(("reads", "std"), [("std", [0, 0.02, 0.04, 0.06, 0.08]), ("variance", None)])
def test_the_standard_deviation_rises_with_the_client(reads: str, std: list[float] | None) -> None:
    partition = Quality(clients=5, sigma=0.1, reads=reads)  # type: ignore[arg-type]
    expected = std or [(0.1 * k / 5) ** 0.5 for k in range(5)]
    for k in range(5):
        noise = partition.change(CLEAN, ROWS, k, seed=0)
        # the standard deviation of an estimate from n normals is std / sqrt(2 n)
        n = noise.numel()
        assert float(noise.std()) == pytest.approx(expected[k], abs=4 * expected[k] / (2 * n) ** 0.5)
        assert abs(float(noise.mean())) <= 4 * expected[k] / n**0.5


def test_noise_is_added_to_the_input() -> None:
    inputs = torch.rand(60, 28, 28)
    partition = Quality(clients=5)
    noise = partition.change(CLEAN, ROWS, 3, seed=0)
    torch.testing.assert_close(partition.change(inputs, ROWS, 3, seed=0), inputs + noise)
    assert torch.equal(partition.change(inputs, ROWS, 0, seed=0), inputs)


def test_noise_belongs_to_the_example_and_is_never_drawn_anew() -> None:
    partition = Quality(clients=5)
    noise = partition.change(CLEAN, ROWS, 4, seed=7)
    assert torch.equal(partition.change(CLEAN, ROWS, 4, seed=7), noise)
    some = torch.tensor([33, 2, 58])  # whoever else is asked for, in whatever order
    assert torch.equal(partition.change(CLEAN[:3], some, 4, seed=7), noise[some])


def test_noise_differs_by_example_pixel_client_and_seed() -> None:
    partition = Quality(clients=5, sigma=5.0)
    noise = partition.change(CLEAN, ROWS, 4, seed=7).flatten(1)
    assert len(noise.flatten().unique()) > 0.99 * noise.numel()
    assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 0.25
    for other in (partition.change(CLEAN, ROWS, 4, seed=8), partition.change(CLEAN, ROWS, 3, seed=7)):
        both = torch.stack([noise.flatten(), other.flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 0.03


def test_who_holds_what_is_equal_and_random() -> None:
    targets = np.repeat(np.arange(10), 100)
    for cls in (IID, Quality):
        hands = cls(clients=8).assign(targets, 0)
        assert {len(hand) for hand in hands} == {125}
        counts = np.stack([np.bincount(targets[hand], minlength=10) for hand in hands])
        # hypergeometric: 12.5 of each label, with a standard deviation of 3.1
        assert np.abs(counts - 12.5).max() < 4 * 3.1 and counts.std() == pytest.approx(3.1, rel=0.3)


def test_what_is_not_floating_cannot_be_noisy() -> None:
    with pytest.raises(DataError, match=r"inputs are torch\.int64: noise needs floating inputs"):
        Quality(clients=5).change(torch.zeros(3, 4, dtype=torch.int64), torch.arange(3), 1, seed=0)
