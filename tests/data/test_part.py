"""One part of all clients."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.data import Part


@given(st.lists(st.integers(0, 7), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 3))
def test_at_most_so_many_examples_of_each_client(sizes: list[int], most: int, seed: int) -> None:
    owners = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    place = torch.arange(len(owners))
    part = Part(place[:, None].double(), owners, torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()]))
    fewer = part.at_most(most, seed)
    assert fewer.sizes.tolist() == [min(size, most) for size in sizes]
    for k in range(len(sizes)):
        inputs, targets = fewer.client(k)
        assert (targets == k).all() and (inputs[1:] > inputs[:-1]).all(), "its own, each once, in the same order"
    assert fewer.inputs.equal(part.at_most(most, seed).inputs)


def test_which_examples_are_kept_is_drawn_for_each_client() -> None:
    part = Part(torch.arange(4000.0)[:, None], torch.arange(4000), torch.arange(0, 4001, 10))
    kept = (part.at_most(5, seed=0).inputs.flatten() % 10).long()
    counts = kept.bincount(minlength=10)
    assert counts.sum() == 2000 and int(counts.min()) > 150 and int(counts.max()) < 250, "200 +- 10 of each place"
    assert not torch.equal(part.at_most(5, seed=0).inputs, part.at_most(5, seed=1).inputs)
