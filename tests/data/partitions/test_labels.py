"""Shards by label: lp-proj's deal and FLAME's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from descant.data.partitions import Labels

MNIST = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]  # how many of each digit there are


def targets_of(counts: list[int]) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 2**40))
def test_every_client_holds_exactly_that_many_labels(clients: int, labels: int, seed: int) -> None:
    clients = max(clients, -(-10 // labels))
    targets = targets_of([40] * 10)
    hands = Labels(clients=clients, labels=labels).assign(targets, seed)
    assert {len(np.unique(targets[hand])) for hand in hands} == {labels}
    holders = np.array([[label in targets[hand] for hand in hands] for label in range(10)]).sum(1)
    assert holders.max() - holders.min() <= 1 and holders.sum() == clients * labels


def test_shards_of_a_label_differ_by_one_example_at_most() -> None:
    targets = targets_of(MNIST)
    hands = Labels(clients=100, labels=2).assign(targets, 0)
    for label, count in enumerate(MNIST):
        held = [n for hand in hands if (n := int((targets[hand] == label).sum()))]
        assert len(held) == 20 and sum(held) == count
        assert max(held) - min(held) <= 1


def test_equal_shards_are_those_of_the_lp_proj_authors() -> None:
    # 5421 training images of the rarest digit make 20 shards of 271: 542 examples a client
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    hands = Labels(clients=100, labels=2, equal=True).assign(targets_of(train), 0)
    assert {len(hand) for hand in hands} == {542}
    dealt = np.concatenate(hands)
    assert len(np.unique(dealt)) == len(dealt) == 100 * 542
    assert {len(hand) for hand in Labels(clients=200, equal=True).assign(targets_of([5000] * 10), 0)} == {250}


def test_with_any_shards_a_client_may_get_a_label_twice() -> None:
    targets = targets_of([100] * 10)
    counts = np.zeros(2)
    for seed in range(300):
        hands = Labels(clients=50, labels=2, distinct=False).assign(targets, seed)
        assert {len(hand) for hand in hands} == {20}
        for hand in hands:
            counts[len(np.unique(targets[hand])) - 1] += 1
    # of 100 shards, ten a label, the second is of the first's label with probability 9 / 99
    share = counts[0] / counts.sum()
    assert share == pytest.approx(9 / 99, abs=4 * np.sqrt(1 / 11 * 10 / 11 / counts.sum()))


@pytest.mark.few(1)
@pytest.mark.parametrize("distinct", [True, False])
def test_shards_are_drawn_at_random(distinct: bool) -> None:
    targets = np.repeat(np.arange(10), 1000)  # sorted, as a folder of classes is
    hands = Labels(clients=50, labels=2, distinct=distinct).assign(targets, 0)
    assert stats.kstest(hands[0] % 1000 / 1000, "uniform").pvalue > 1e-3  # places within the labels
    deals = [Labels(clients=50, distinct=distinct).assign(targets, seed) for seed in range(100)]
    assert len({tuple(np.unique(targets[hands[0]])) for hands in deals}) > 30  # of 45 pairs
