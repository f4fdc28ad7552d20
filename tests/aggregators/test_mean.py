"""The mean aggregator."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.aggregators import AGGREGATORS, Mean

senders = st.integers(1, 12)
seeds = st.integers(0, 10_000)


def messages(s: int, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    leaves = {
        "delta": torch.randn(s, 5, generator=g, dtype=torch.float64),
        "matrix": torch.randn(s, 2, 3, generator=g, dtype=torch.float64),
        "loss": torch.randn(s, generator=g, dtype=torch.float64),
    }
    return leaves, torch.randint(1, 1000, (s,), generator=g, dtype=torch.int32)


@given(senders, seeds)
def test_without_weights_every_message_counts_the_same(s: int, seed: int) -> None:
    leaves, _ = messages(s, seed)
    for name, mean in Mean()(leaves).items():
        np.testing.assert_allclose(mean, leaves[name].numpy().mean(0), rtol=1e-12, atol=1e-14)


@given(senders, seeds)
def test_with_weights_every_example_counts_the_same(s: int, seed: int) -> None:
    leaves, n = messages(s, seed)
    for name, mean in Mean()(leaves, n).items():
        by_hand = sum(int(n[k]) * leaves[name][k].numpy() for k in range(s)) / int(n.sum())
        np.testing.assert_allclose(mean, by_hand, rtol=1e-12, atol=1e-14)
        assert mean.shape == leaves[name].shape[1:]


@given(senders, seeds, st.booleans())
def test_the_order_of_the_messages_does_not_matter(s: int, seed: int, weighted: bool) -> None:
    leaves, n = messages(s, seed)
    order = torch.randperm(s, generator=torch.Generator().manual_seed(seed))
    shuffled = {name: leaf[order] for name, leaf in leaves.items()}
    one, other = Mean()(leaves, n if weighted else None), Mean()(shuffled, n[order] if weighted else None)
    for name in leaves:
        torch.testing.assert_close(other[name], one[name], rtol=1e-12, atol=1e-14)


@given(senders, seeds)
def test_equal_weights_are_the_plain_mean(s: int, seed: int) -> None:
    leaves, _ = messages(s, seed)
    for name, mean in Mean()(leaves, torch.full((s,), 7, dtype=torch.int32)).items():
        torch.testing.assert_close(mean, Mean()(leaves)[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_dtype_of_a_leaf_is_kept(dtype: torch.dtype, weighted: bool) -> None:
    n = torch.tensor([1, 2, 3], dtype=torch.int32) if weighted else None
    mean = Mean()({"x": torch.ones(3, 4, dtype=dtype)}, n)["x"]
    assert mean.dtype == dtype


def test_float64_keeps_what_float32_would_lose() -> None:
    tiny = torch.tensor([[1.0 + 1e-12], [1.0]], dtype=torch.float64)
    mean = Mean()({"x": tiny}, torch.tensor([1, 1], dtype=torch.int32))["x"]
    assert 0 < float(mean) - 1.0 < 1e-12


def test_a_single_message_is_its_own_mean() -> None:
    leaf = torch.tensor([[0.1, -3.0]])
    assert torch.equal(Mean()({"x": leaf}, torch.tensor([5]))["x"], leaf[0])


def test_it_is_known_by_its_name() -> None:
    assert AGGREGATORS["mean"] is Mean
