"""From examples and a partition to federated data."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import descant as dc
from descant import catalog
from descant.data import DataError, Partition, partitioned
from descant.data.partitions import IID, Dirichlet, Labels, Natural, PowerLawSizes, Quality, Quantity
from descant.errors import SettingError
from descant.listing import entries

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Some:
    """1,000 examples; an input says which one it is."""

    inputs: Tensor
    targets: Tensor
    owners: Tensor | None = None
    owner_names: tuple[str, ...] = ()
    test_from: int | None = None
    name: str = "some"
    classes: int | None = 10

    def rows(self, index: Tensor) -> Tensor:
        return self.inputs[index]


def some(**more: object) -> Some:
    rows = torch.arange(1000)
    return Some(rows.float().view(-1, 1).expand(-1, 3).contiguous(), (rows * 7) % 10, **more)  # type: ignore[arg-type]


def test_every_example_keeps_its_target_and_goes_to_the_client_that_holds_it() -> None:
    examples, partition = some(), Labels(clients=10, labels=2)
    data = partitioned(examples, partition, seed=3)
    hands = partition.assign(examples.targets.numpy(), 3)
    for k, hand in enumerate(hands):
        own = [data.part(part).client(k) for part in PARTS]
        rows = torch.cat([inputs[:, 0] for inputs, _ in own]).long()
        assert np.array_equal(np.sort(rows), np.sort(hand))
        assert torch.equal(torch.cat([targets for _, targets in own]), examples.targets[rows])
        assert [len(targets) for _, targets in own] == [64, 16, 20]


def test_the_parts_of_a_client_are_of_its_own_distribution() -> None:
    data = partitioned(some(), Dirichlet(clients=5, alpha=0.3), test=0.5, valid=0.0)
    for k in range(5):
        train, test = (np.bincount(data.part(part).client(k)[1], minlength=10) for part in ("train", "test"))
        # halves drawn from the same hand: hypergeometric, a standard deviation of sqrt(n) / 2 a label
        assert (np.abs(train - test) <= 4 * np.sqrt(train + test) + 1).all()
        assert train.std() > 2 * np.sqrt(train.mean())  # and that distribution is skewed


def test_it_is_described_by_settings_that_make_it_again() -> None:
    data = partitioned(some(), PowerLawSizes(clients=9, exponent=0.7), valid=0.1, seed=4)
    partition = catalog.build("partitions", data.settings["partition"])
    shares = {name: data.settings[name] for name in ("test", "valid", "seed")}
    assert partitioned(some(), partition, **shares).fingerprint == data.fingerprint
    assert (data.name, data.classes, data.clients[:2]) == ("some", 10, ("0", "1"))


def test_noise_is_that_of_the_example_in_every_part() -> None:
    partition = Quality(clients=4, sigma=0.05)
    clean, noisy = (partitioned(some(), p, seed=1) for p in (IID(clients=4), partition))
    rows = partition.assign(some().targets.numpy(), 1)
    for part in PARTS:
        for k in range(4):
            inputs, _ = noisy.part(part).client(k)
            row = inputs[:, 0].round().long()  # the noise is small beside the number
            assert np.isin(row, rows[k]).all()
            expected = partition.change(some().inputs[row], row, k, seed=1)
            assert torch.equal(inputs, expected) and (k == 0) == torch.equal(inputs, some().inputs[row])
    assert clean.train.inputs.frac().abs().max() == 0


def test_natural_clients_have_their_owners_names_and_groups_have_numbers() -> None:
    owners = torch.arange(1000) ** 2 % 3  # 0 and 1
    owners[0] = 2
    examples = some(owners=owners, owner_names=("ann", "bob", "one image"))
    assert partitioned(examples, Natural(least=2)).clients == ("ann", "bob")
    assert partitioned(examples, Natural(clients=1)).clients == ("0",)
    with pytest.raises(DataError, match=r"client 'one image': 1 example\(s\), of which .* leave none to train on"):
        partitioned(examples, Natural())


def test_official_test_examples_are_tested_on_and_never_trained_on() -> None:
    data = partitioned(some(test_from=800), IID(clients=4), test="official", valid=0.25, seed=2)
    assert data.test.inputs.min() == 800 and data.test.inputs.max() == 999
    assert max(data.train.inputs.max(), data.valid.inputs.max()) == 799
    assert int(data.test.sizes.sum()) == 200 and int((data.train.sizes + data.valid.sizes).sum()) == 800
    kept = data.train.sizes + data.valid.sizes
    assert torch.equal(data.valid.sizes, kept // 4)
    assert torch.equal(kept + data.test.sizes, torch.full((4,), 250))
    for k in range(4):
        hand = IID(clients=4).assign(some().targets.numpy(), 2)[k]
        assert np.array_equal(np.sort(data.test.client(k)[0][:, 0].long()), np.sort(hand[hand >= 800]))


def test_data_without_an_official_test_part_says_so() -> None:
    with pytest.raises(DataError, match=r"no test part of its own: give test as a share"):
        partitioned(some(), IID(clients=4), test="official")


def test_overlapping_clients_are_allowed_where_the_partition_says_so() -> None:
    data = partitioned(some(), Quantity(clients=4, least=300, overlap=True))
    assert sum(int(data.part(part).sizes.sum()) for part in PARTS) > 1000

    @dataclass(frozen=True, kw_only=True)
    class Twice(Partition):
        """Deals an example twice."""

        name = "twice"
        both: bool = False

        @property
        def overlaps(self) -> bool:
            return self.both

        def assign(self, targets, seed, owners=None):  # type: ignore[no-untyped-def]
            return [np.arange(500), np.arange(499, 1000)] if not self.both else [np.array([0, 1, 1]), np.arange(9)]

    with pytest.raises(DataError, match=r"client '1': example 499 is assigned twice \(also to client '0'\)"):
        partitioned(some(), Twice())
    with pytest.raises(DataError, match=r"client '0': example 1 is assigned twice"):
        partitioned(some(), Twice(both=True))


def test_partitions_are_named_in_settings_and_mistakes_are_found() -> None:
    build = catalog.build
    data = build("datasets", {"name": "digits", "partition": {"name": "labels", "clients": 10, "labels": 3}})
    assert len(data) == 10 and (data.counts() > 0).sum(1).max() == 3
    assert len(build("datasets", {"name": "digits", "partition": None, "clients": 15})) == 15
    with pytest.raises(ValueError, match=r"Did you mean 'dirichlet'"):
        build("datasets", {"name": "digits", "partition": {"name": "dirchlet", "clients": 10}})
    with pytest.raises(ValueError, match=r"partition 'iid' needs a value for clients"):
        build("datasets", {"name": "digits", "partition": "iid"})
    with pytest.raises(ValueError, match=r"partition\.reads = 'sd': "):
        build("datasets", {"name": "digits", "partition": {"name": "quality", "clients": 3, "reads": "sd"}})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"name": "labels", "clients": 5, "labels": 99}, "partition.labels = 99"),  # a field of the data set, too
        ({"name": "hybrid", "clients": 5, "labels": 99}, "partition.labels = 99"),  # refused by one of its halves
        ({"name": "dirichlet", "clients": 50, "alpha": 1e-4, "least": 20}, "partition.least = 20"),
    ],
)
def test_what_the_examples_cannot_fill_is_named_as_it_was_written(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=rf"^data\.{re.escape(said)}: it must be"):
        catalog.build("datasets", {"name": "digits", "partition": spec}, path="data")
    with pytest.raises(SettingError, match=rf"^{re.escape(said)}: it must be"):
        dc.data.digits(partition=catalog.build("partitions", spec))
    with pytest.raises(SettingError, match=r"^data\.labels = 99: it must be"):
        catalog.build("datasets", {"name": "digits", "labels": 99}, path="data")


def test_the_catalog_lists_partitions_with_their_fields() -> None:
    found = {entry["name"]: entry for entry in entries("partitions")}
    assert {"iid", "labels", "dirichlet", "quantity", "power-law", "quality", "hybrid", "natural"} <= set(found)
    assert all(entry["summary"] for entry in found.values())
    fields = {field["name"]: field for field in found["labels"]["fields"]}
    assert list(fields) == ["clients", "least", "labels", "distinct", "equal"]
    assert fields["clients"]["required"] and fields["labels"]["default"] == 2
