"""What holds for every partition: disjoint, complete, deterministic, and of sizes that were asked for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descant.data import PARTITIONS, DataError, Partition
from descant.data.partitions import Dirichlet, Hybrid, Labels, Natural, PowerLawSizes, Quantity
from descant.errors import SettingError

CLASSES = 4
NAMES = sorted(PARTITIONS)


@st.composite
def cases(draw: st.DrawFn, name: str) -> tuple[Partition, np.ndarray, np.ndarray]:
    """A partition that can be made, targets with at least 40 of each of 4 labels, and an owner for each."""
    counts = draw(st.lists(st.integers(40, 70), min_size=CLASSES, max_size=CLASSES))
    values = draw(st.sampled_from([[0, 1, 2, 3], [7, 1, 30, 2]]))  # labels need not be numbered without gaps
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    targets = rng.permutation(np.repeat(values, counts))
    owners = rng.integers(0, 6, len(targets))
    clients = draw(st.integers(4, 8))
    settings: dict[str, Any] = {"clients": clients}
    if name in ("labels", "power-law", "hybrid"):
        settings["labels"] = draw(st.integers(1 if name != "hybrid" else 2, CLASSES))
    if name == "labels":
        settings |= {"distinct": draw(st.booleans())}
    if name in ("dirichlet", "quantity", "hybrid"):
        settings |= {"alpha": draw(st.floats(0.05, 20)), "least": 0}
    if name == "power-law":
        settings |= {"exponent": draw(st.floats(0, 3)), "least": draw(st.integers(0, 2))}
        settings["labels"] = draw(st.sampled_from([None, settings["labels"]]))
    if name == "natural":
        settings["clients"] = draw(st.sampled_from([None, 1, 3]))
    return PARTITIONS[name](**settings), targets, owners


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), seed=st.integers(0, 2**40))
def test_every_example_goes_to_exactly_one_client(name: str, data: st.DataObject, seed: int) -> None:
    partition, targets, owners = data.draw(cases(name))
    hands = partition.assign(targets, seed, owners)
    dealt = np.sort(np.concatenate(hands))
    assert np.array_equal(dealt, np.arange(len(targets)))
    clients = getattr(partition, "clients", None)
    assert len(hands) == (clients or len(np.unique(owners)))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), seed=st.integers(0, 2**40))
def test_a_partition_follows_its_seed_and_nothing_else(name: str, data: st.DataObject, seed: int) -> None:
    partition, targets, owners = data.draw(cases(name))
    first = partition.assign(targets, seed, owners)
    np.random.default_rng(0).random(5)
    np.random.seed(1)  # a global generator has no say
    again = partition.assign(targets.copy(), seed, owners.copy())
    assert all(map(np.array_equal, first, again))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "natural"])
def test_another_seed_deals_otherwise(name: str) -> None:
    targets = np.arange(400) % 4
    partition = PARTITIONS[name](clients=8)  # type: ignore[call-arg]
    assert not all(map(np.array_equal, partition.assign(targets, 0), partition.assign(targets, 1)))


@pytest.mark.parametrize("name", NAMES)
@given(clients=st.integers(1, 30), least=st.integers(0, 30), seed=st.integers(0, 9))
def test_a_minimum_size_is_kept_or_refused(name: str, clients: int, least: int, seed: int) -> None:
    targets, owners = np.arange(200) % 4, np.arange(200) ** 2 % 17
    try:
        hands = PARTITIONS[name](clients=clients, least=least).assign(targets, seed, owners)  # type: ignore[call-arg]
    except SettingError as error:
        assert "must be" in str(error)
        # where everybody could have that many, only chance or shards stand in the way
        assert clients * least > 200 or name in ("labels", "power-law", "hybrid", "dirichlet", "natural")
    else:
        assert min(map(len, hands)) >= least
        assert len(hands) == clients


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        (Labels(clients=100, least=3), r"Labels\.least = 3: it must be at most 2, the size of the smallest client"),
        (Labels(clients=201), r"Labels\.clients = 201: .* clients \* labels, here 402, is 4 .* to 200"),
        (Labels(clients=10, labels=5), r"Labels\.labels = 5: it must be 1 to 4"),
        (Labels(clients=1, labels=2), r"Labels\.clients = 1: .* here 2, is 4 \(a shard of every label\)"),
        (Quantity(clients=21), r"Quantity\.clients = 21: .* 10 examples each: there are 200"),
        (Dirichlet(clients=10, alpha=0.01), r"Dirichlet\.least = 10: it must be smaller: Dir\(0\.01\)"),
        (PowerLawSizes(clients=18, labels=1, least=11), r"PowerLawSizes\.least = 11: .* 11 of each label held"),
        (Hybrid(clients=22), r"Hybrid\.clients = 22: .* 10 examples each: there are 200"),
        (Natural(clients=6), r"Natural\.clients = 6: it must be at most 5, the number of owners"),
        (Natural(least=41), r"Natural\.least = 41: .* no owner has that many"),
    ],
    ids=lambda value: value.name if isinstance(value, Partition) else "",
)
def test_what_cannot_be_dealt_is_refused_with_the_reason(partition: Partition, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        partition.assign(np.arange(200) % 4, 0, np.arange(200) % 5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {"clients": 0}) for name in NAMES]
    + [(name, {"clients": 5, "least": -1}) for name in NAMES]
    + [("labels", {"clients": 5, "labels": 0}), ("power-law", {"clients": 5, "labels": 0})]
    + [("hybrid", {"clients": 5, "labels": 0}), ("hybrid", {"clients": 1}), ("hybrid", {"clients": 5, "alpha": 0})]
    + [(name, {"clients": 5, "alpha": alpha}) for name in ("dirichlet", "quantity") for alpha in (0, -1, np.inf)]
    + [("power-law", {"clients": 5, "exponent": -1}), ("quality", {"clients": 5, "sigma": -1})]
    + [("quality", {"clients": 5, "reads": "deviation"})],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, settings: dict[str, Any]) -> None:
    field, value = list(settings.items())[-1]
    with pytest.raises(SettingError, match=rf"^{PARTITIONS[name].__name__}\.{field} = {value!r}: it must be "):
        PARTITIONS[name](**settings)


@pytest.mark.parametrize("name", ["labels", "dirichlet", "hybrid"])
@pytest.mark.parametrize(
    "targets", [np.zeros(40), np.zeros((40, 3), dtype=np.int64)], ids=["floating", "sequences"]
)
def test_targets_that_are_not_labels_cannot_be_dealt_by_label(name: str, targets: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"needs one integer label an example"):
        PARTITIONS[name](clients=2).assign(targets, 0)  # type: ignore[call-arg]
    assert len(PARTITIONS["iid"](clients=2).assign(targets, 0)) == 2  # type: ignore[call-arg]


OVERLAPPING = [
    Dirichlet(clients=6, overlap=True),
    Quantity(clients=6, overlap=True),
    Hybrid(clients=6, overlap=True),
]


@pytest.mark.parametrize("partition", OVERLAPPING, ids=lambda p: p.name)
def test_clients_overlap_only_where_asked_for_and_never_with_themselves(partition: Partition) -> None:
    targets = np.arange(600) % 4
    hands = partition.assign(targets, 0)
    assert partition.overlaps and not type(partition)(clients=6).overlaps  # type: ignore[call-arg]
    assert all(len(np.unique(hand)) == len(hand) for hand in hands)
    assert len(np.unique(np.concatenate(hands))) < sum(map(len, hands))
