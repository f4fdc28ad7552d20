"""Dirichlet skew has the moments of the Dirichlet distribution."""

import numpy as np
import pytest
from scipy import stats

from descant.data.partitions import Dirichlet, Quantity

N, PER_LABEL, CLASSES = 5, 2000, 10
TARGETS = np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), PER_LABEL))


def label_shares(alpha: float, seeds: int, overlap: bool = False) -> np.ndarray:
    """What share of a label each client holds, [seeds * labels, N]: independent rows of Dir(alpha)."""
    partition = Dirichlet(clients=N, alpha=alpha, least=0, overlap=overlap)
    rows = []
    for seed in range(seeds):
        hands = partition.assign(TARGETS, seed)
        rows.append(np.stack([np.bincount(TARGETS[hand], minlength=CLASSES) for hand in hands], axis=1))
    return np.concatenate(rows) / PER_LABEL


def size_shares(alpha: float, seeds: int, overlap: bool = False) -> np.ndarray:
    partition = Quantity(clients=N, alpha=alpha, least=0, overlap=overlap)
    return np.array([[len(hand) for hand in partition.assign(TARGETS, seed)] for seed in range(seeds)]) / len(
        TARGETS
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
@pytest.mark.parametrize(("shares_of", "seeds"), [(label_shares, 40), (size_shares, 400)], ids=["labels", "sizes"])
def test_the_variance_of_a_share_is_that_of_the_dirichlet(
    shares_of: object, seeds: int, alpha: float, overlap: bool
) -> None:
    p = shares_of(alpha, seeds, overlap)  # type: ignore[operator]  # [400, N]
    assert np.allclose(p.sum(1), 1, atol=N / PER_LABEL if overlap else 1e-12)
    exact = (1 / N) * (1 - 1 / N) / (N * alpha + 1)
    spread = ((p - 1 / N) ** 2).mean(1)  # one estimate a draw
    assert spread.mean() == pytest.approx(exact, abs=4 * spread.std() / len(p) ** 0.5)
    means = p.mean(0)
    assert np.abs(means - 1 / N).max() < 4 * (exact / len(p)) ** 0.5


@pytest.mark.few(1)
@pytest.mark.parametrize("alpha", [0.5, 5.0])
@pytest.mark.parametrize(("shares_of", "seeds"), [(label_shares, 40), (size_shares, 400)], ids=["labels", "sizes"])
def test_a_clients_share_is_beta_distributed(shares_of: object, seeds: int, alpha: float) -> None:
    p = shares_of(alpha, seeds)  # type: ignore[operator]
    for k in range(N):
        assert stats.kstest(p[:, k], stats.beta(alpha, alpha * (N - 1)).cdf).pvalue > 1e-3


def test_labels_are_drawn_independently() -> None:
    p = label_shares(0.5, 40).reshape(40, CLASSES, N)
    between = np.corrcoef(p[:, :, 0].T) - np.eye(CLASSES)
    assert np.abs(between).max() < 4 / 40**0.5


def test_which_examples_of_a_label_a_client_gets_is_random() -> None:
    sorted_targets = np.repeat(np.arange(CLASSES), PER_LABEL)
    hand = Dirichlet(clients=2, alpha=100.0).assign(sorted_targets, 0)[0]
    places = hand % PER_LABEL / PER_LABEL  # within the label
    assert stats.kstest(places, "uniform").pvalue > 1e-3


def test_a_minimum_is_kept_by_drawing_anew() -> None:
    free, bound = Dirichlet(clients=N, alpha=0.1, least=0), Dirichlet(clients=N, alpha=0.1, least=800)
    smallest = [min(map(len, free.assign(TARGETS, seed))) for seed in range(20)]
    assert min(smallest) < 800 < max(smallest)
    for seed, least in enumerate(smallest):
        hands = bound.assign(TARGETS, seed)
        assert min(map(len, hands)) >= 800
        assert all(map(np.array_equal, hands, free.assign(TARGETS, seed))) == (least >= 800)


def test_quantities_below_the_minimum_are_raised_to_it() -> None:
    for seed in range(20):
        free = np.array([len(h) for h in Quantity(clients=N, alpha=0.1, least=0).assign(TARGETS, seed)])
        bound = np.array([len(h) for h in Quantity(clients=N, alpha=0.1, least=500).assign(TARGETS, seed)])
        assert bound.min() >= 500 and bound.sum() == len(TARGETS)
        assert (bound[free < 500] == 500).all()
        above = bound > 500
        ratio = bound[above] / free[above]
        assert ratio.max() - ratio.min() < 2 / 500 and ratio.max() <= 1


def test_overlapping_quantities_are_the_larger_of_the_minimum_and_the_share() -> None:
    sizes = np.array([len(h) for h in Quantity(clients=N, alpha=0.1, least=100, overlap=True).assign(TARGETS, 3)])
    free = np.array([len(h) for h in Quantity(clients=N, alpha=0.1, least=0, overlap=True).assign(TARGETS, 3)])
    assert np.array_equal(sizes, np.maximum(free, 100)) and free.min() < 100
    many = Quantity(clients=300, least=100, overlap=True).assign(TARGETS, 0)  # more than the data set holds
    assert sum(map(len, many)) > len(TARGETS)


def test_overlapping_clients_draw_independently_of_each_other() -> None:
    hands = Dirichlet(clients=2, alpha=1000.0, overlap=True).assign(TARGETS, 0)
    both = len(np.intersect1d(*hands))  # halves drawn independently meet in a quarter
    assert both == pytest.approx(len(TARGETS) / 4, rel=0.05)
