"""Sizes follow the power law that was asked for."""

import numpy as np
import pytest

from descant.data.partitions import PowerLawSizes

TARGETS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 7000))


def sizes_of(hands: list[np.ndarray]) -> np.ndarray:
    return np.sort([len(hand) for hand in hands])[::-1]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
def test_the_rth_largest_is_the_largest_times_r_to_the_minus_exponent(exponent: float) -> None:
    sizes = sizes_of(PowerLawSizes(clients=100, exponent=exponent, least=0).assign(TARGETS, 0))
    law = np.arange(1, 101) ** -exponent
    assert np.abs(sizes - law / law.sum() * len(TARGETS)).max() < 1
    slope = np.polyfit(np.log(np.arange(1, 101)), np.log(sizes), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.01)


def test_the_minimum_is_kept_and_the_rest_stays_a_power_law() -> None:
    sizes = sizes_of(PowerLawSizes(clients=100, exponent=2.0, least=50).assign(TARGETS, 0))
    assert sizes[-1] == 50 and sizes.sum() == len(TARGETS)
    head = np.flatnonzero(sizes > 60)
    assert len(head) > 20
    assert np.polyfit(np.log(head + 1), np.log(sizes[head]), 1)[0] == pytest.approx(-2, abs=0.02)


def test_which_client_is_the_largest_is_drawn() -> None:
    largest = [np.argmax([len(h) for h in PowerLawSizes(clients=10).assign(TARGETS, seed)]) for seed in range(40)]
    assert len(set(largest)) > 6


def test_a_thousand_clients_of_one_digit_each() -> None:
    hands = PowerLawSizes(clients=1000, labels=1, exponent=1.0, least=2).assign(TARGETS, 0)
    assert {len(np.unique(TARGETS[hand])) for hand in hands} == {1}
    digit = np.array([TARGETS[hand[0]] for hand in hands])
    law = 1 / np.arange(1, 101)
    for label in range(10):
        sizes = sizes_of([hands[k] for k in np.flatnonzero(digit == label)])
        assert np.abs(sizes - law / law.sum() * 7000).max() < 1


def test_every_client_holds_that_many_labels_and_the_large_ones_are_large_in_each() -> None:
    hands = PowerLawSizes(clients=50, labels=3).assign(TARGETS, 0)
    counts = np.stack([np.bincount(TARGETS[hand], minlength=10) for hand in hands])
    assert ((counts > 0).sum(1) == 3).all()
    order = np.argsort(-counts.sum(1))
    assert counts[order[0]].max() > 2000  # the first of 15 holders has 7000 / H_15 = 2110
    assert np.sort(counts[order[0]])[-3:].min() > 2000
    for label in range(10):
        held = np.sort(counts[:, label][counts[:, label] > 0])[::-1]
        law = 1 / np.arange(1, len(held) + 1)
        assert np.abs(held - law / law.sum() * 7000).max() < 1
