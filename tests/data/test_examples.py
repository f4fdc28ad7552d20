"""Examples before anybody holds them, and from there to clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.data import DataError, Examples
from descant.data.clients import clients_of
from descant.data.examples import joined
from descant.data.partitions import IID, Natural, Quality
from descant.errors import SettingError

BYTES = torch.arange(60, dtype=torch.uint8).view(30, 1, 1, 2)
PICTURES = Examples("pictures", BYTES, torch.arange(30) % 3, 3)
OWNED = replace(PICTURES, owners=torch.arange(30) // 10, owner_names=("ann", "bob", "eve"))


@given(mean=st.floats(-2, 2), std=st.floats(0.1, 3))
def test_pixels_become_floats_when_they_are_taken(mean: float, std: float) -> None:
    rows = torch.tensor([3, 0, 3])
    expected = (BYTES[rows].double() / 255 - mean) / std
    taken = replace(PICTURES, mean=mean, std=std).rows(rows)
    assert taken.dtype == torch.float32
    torch.testing.assert_close(taken.double(), expected, atol=1e-5, rtol=1e-5)


def test_without_a_partition_owners_are_the_clients() -> None:
    data = clients_of(OWNED, None, test=0.2, valid=0.25, seed=0)
    assert data.clients == ("ann", "bob", "eve") and data.train.sizes.tolist() == [6, 6, 6]
    assert data.valid.sizes.tolist() == data.test.sizes.tolist() == [2, 2, 2]
    held = torch.cat([data.part(part).inputs.flatten() for part in ("train", "valid", "test")])
    torch.testing.assert_close((held * 255).round().sort().values, torch.arange(60.0))


def test_without_owners_a_partition_is_asked_for() -> None:
    with pytest.raises(SettingError, match=r"pictures: partition = None: .*say who holds what"):
        clients_of(PICTURES, None, test=0.2, valid=0.2, seed=0)


def test_a_partition_deals_pictures_as_floats() -> None:
    data = clients_of(PICTURES, IID(clients=5), test=0.2, valid=0.2, seed=0, mean=0.5, std=0.5, settings={"a": 1})
    assert data.train.inputs.dtype == torch.float32 and len(data) == 5
    low, high = data.train.inputs.aminmax()
    assert float(low) >= -1 and float(high) <= (59 / 255 - 0.5) / 0.5 + 1e-6
    assert data.settings["a"] == 1 and data.settings["partition"]["name"] == "iid"


def test_noise_of_a_partition_is_added_to_what_models_see() -> None:
    plain = clients_of(PICTURES, Quality(clients=3, sigma=0.0), test=0.2, valid=0.2, seed=0)
    noisy = clients_of(PICTURES, Quality(clients=3, sigma=1.0), test=0.2, valid=0.2, seed=0)
    assert torch.equal(plain.train.targets, noisy.train.targets)
    assert not torch.allclose(plain.train.inputs, noisy.train.inputs)


def test_the_official_test_part_is_tested_on_by_its_owners() -> None:
    data = clients_of(
        replace(OWNED, test_from=24, owners=torch.arange(30) % 3), None, test="official", valid=0.25, seed=0
    )
    assert data.test.sizes.tolist() == [2, 2, 2] and data.train.sizes.tolist() == [6, 6, 6]
    tested = (data.test.inputs * 255).round().flatten().sort().values
    assert tested.tolist() == list(range(48, 60))


def test_owners_with_test_examples_alone_are_left_out() -> None:
    owners = torch.tensor([0] * 10 + [1] * 10 + [0] * 5 + [2] * 5)
    data = clients_of(replace(OWNED, owners=owners, test_from=20), None, test="official", valid=0.2, seed=0)
    assert data.clients == ("ann", "bob") and data.test.sizes.tolist() == [5, 0]
    with pytest.raises(DataError, match="no owner of a test example has training examples"):
        clients_of(replace(OWNED, test_from=10), None, test="official", valid=0.2, seed=0)


def test_where_keeps_what_is_wanted_and_moves_the_test_part() -> None:
    kept = replace(OWNED, test_from=20).where(OWNED.targets == 1)
    assert kept.test_from == 7 and len(kept) == 10 and kept.owners is not None
    assert kept.owners.tolist() == (OWNED.owners[OWNED.targets == 1]).tolist()  # type: ignore[index]


def test_joined_parts_match_owners_by_name() -> None:
    train = replace(OWNED, owner_names=("ann", "bob", "eve"))
    test = replace(OWNED, owner_names=("eve", "zoe", "ann"))
    both = joined(train, test)
    assert both.owner_names == ("ann", "bob", "eve", "zoe") and both.test_from == 30
    assert both.owners is not None and both.owners[30:].tolist() == [2] * 10 + [3] * 10 + [0] * 10


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(DataError, match="30 inputs but 29 targets"):
        replace(PICTURES, targets=torch.zeros(29))
    with pytest.raises(DataError, match="owner 2 has no name"):
        replace(OWNED, owner_names=("ann", "bob"))
    with pytest.raises(SettingError, match="std = 0"):
        clients_of(OWNED, Natural(), test=0.2, valid=0.2, seed=0, std=0)
