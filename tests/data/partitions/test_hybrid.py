"""Hybrid skew: one half by label, the other by quantity."""

import numpy as np
import pytest

from descant.data.partitions import Hybrid

TARGETS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 1000))


@pytest.mark.parametrize("clients", [10, 11])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_first_half_holds_few_labels_and_the_other_all(clients: int, overlap: bool) -> None:
    half = (clients + 1) // 2
    hands = Hybrid(clients=clients, labels=2, alpha=0.5, least=100, overlap=overlap).assign(TARGETS, 1)
    assert len(hands) == clients and min(map(len, hands)) >= 100
    held = [len(np.unique(TARGETS[hand])) for hand in hands]
    assert held[:half] == [2] * half and min(held[half:]) == 10


@pytest.mark.slow
def test_the_quantities_of_the_second_half_are_dirichlet() -> None:
    p = np.empty((300, 5))
    for seed in range(300):
        hands = Hybrid(clients=10, alpha=0.5, least=0).assign(TARGETS, seed)
        assert {len(hand) // 100 for hand in hands[:5]} <= {9, 10}  # two labels of ten, of half the examples
        p[seed] = [len(hand) / 5000 for hand in hands[5:]]
    spread = ((p - 1 / 5) ** 2).mean(1)
    assert spread.mean() == pytest.approx(1 / 5 * 4 / 5 / (5 * 0.5 + 1), abs=4 * spread.std() / 300**0.5)


def test_each_half_deals_its_share_of_the_examples() -> None:
    hands = Hybrid(clients=11).assign(TARGETS, 0)
    assert sum(map(len, hands[:6])) == 10_000 * 6 // 11
    assert sum(map(len, hands[6:])) == 10_000 - 10_000 * 6 // 11


def test_overlapping_halves_each_deal_the_whole_data_set() -> None:
    hands = Hybrid(clients=10, overlap=True).assign(TARGETS, 0)
    # five clients of two labels: whole labels, as in FLAME's code
    assert np.array_equal(np.sort(np.concatenate(hands[:5])), np.arange(10_000))
    assert {len(hand) for hand in hands[:5]} == {2000}
    assert sum(map(len, hands[5:])) == pytest.approx(10_000, abs=5 * 11)
