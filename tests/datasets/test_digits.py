"""The bundled digits, dealt by label."""

import sys

import numpy as np
import pytest
import torch

from descant.data.partitions import Dirichlet, Labels
from descant.datasets import digits
from descant.errors import SettingError


def labels_held(clients: int, labels: int) -> list[set[int]]:
    data = digits(clients=clients, labels=labels)
    parts = (data.train, data.valid, data.test)
    return [{int(y) for part in parts for y in part.client(k)[1]} for k in range(clients)]


@pytest.mark.parametrize(("clients", "labels"), [(20, 2), (10, 1), (7, 3), (13, 10), (1, 10), (33, 4)])
def test_every_client_holds_that_many_labels_and_all_labels_are_held(clients: int, labels: int) -> None:
    held = labels_held(clients, labels)
    assert {len(own) for own in held} == {labels}
    assert set.union(*held) == set(range(10))


def test_every_image_belongs_to_exactly_one_client() -> None:
    from sklearn.datasets import load_digits

    data = digits()
    rows = torch.cat([part.inputs for part in (data.train, data.valid, data.test)]).numpy()
    expected = (load_digits().data / 16).astype(np.float32)
    assert rows.shape == (1797, 64)
    assert np.array_equal(rows[np.lexsort(rows.T)], expected[np.lexsort(expected.T)])


def test_pixels_are_between_zero_and_one() -> None:
    data = digits()
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 1)
    assert (data.input_shape, data.classes, data.train.inputs.dtype) == ((64,), 10, torch.float32)


def test_clients_are_of_similar_size() -> None:
    data = digits()
    sizes = data.train.sizes + data.valid.sizes + data.test.sizes
    assert sizes.max() - sizes.min() <= 6


def test_the_deal_follows_the_seed() -> None:
    assert torch.equal(digits().train.inputs, digits().train.inputs)
    assert not torch.equal(digits().counts(), digits(seed=1).counts())


@pytest.mark.parametrize(("clients", "labels"), [(20, 0), (20, 11), (4, 2), (0, 2), (1000, 2)])
def test_a_deal_that_cannot_be_made_is_refused(clients: int, labels: int) -> None:
    with pytest.raises(SettingError, match=rf"Labels\.(clients = {clients}|labels = {labels}): it must be "):
        digits(clients=clients, labels=labels)


def test_another_partition_takes_the_place_of_the_deal() -> None:
    data = digits(partition=Dirichlet(clients=7, alpha=0.3), seed=2)
    assert (len(data), data.name, data.classes) == (7, "digits", 10)
    assert sum(int(part.sizes.sum()) for part in (data.train, data.valid, data.test)) == 1797
    assert data.settings["partition"] == {
        "name": "dirichlet",
        "clients": 7,
        "least": 10,
        "alpha": 0.3,
        "overlap": False,
    }
    same = digits(partition=Labels(clients=20, labels=2))
    assert (same.counts() > 0).sum(1).max() == 2


def test_a_missing_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits()
