"""Labels that are words: the same numbers for all clients and parts, and the names kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import descant as dc
from descant.data import DataError, FederatedData, from_huggingface
from descant.data.partitions import IID

X = np.arange(40, dtype=np.float32).reshape(10, 4)
ANN, BOB = np.array(["dog", "cat"] * 5), np.array(["mouse", "cat"] * 5)
NAMES = ("cat", "dog", "mouse")


def words_of(data: FederatedData) -> dict[str, list[tuple[float, str]]]:
    """Every client's examples, by the first number of their inputs, with their words."""
    found: dict[str, list[tuple[float, str]]] = {}
    for k, client in enumerate(data.clients):
        rows = [data.part(part).client(k) for part in ("train", "valid", "test")]
        examples = [pair for inputs, targets in rows for pair in zip(inputs, targets, strict=True)]
        found[client] = sorted((float(x[0]), data.class_names[int(y)]) for x, y in examples)
    return found


EXPECTED = {
    "ann": [(float(x[0]), str(word)) for x, word in zip(X, ANN, strict=True)],
    "bob": [(float(x[0]), str(word)) for x, word in zip(X, BOB, strict=True)],
}


@pytest.mark.parametrize("form", [np.asarray, list, lambda y: y.astype("S"), lambda y: y.astype(object)])
def test_words_get_the_same_numbers_for_all_clients(form: Any) -> None:
    data = FederatedData.from_arrays({"ann": (X, form(ANN)), "bob": (X, form(BOB))})
    assert data.class_names == NAMES and data.classes == 3 and data.train.targets.dtype == torch.int64
    assert words_of(data) == EXPECTED


def test_words_get_the_same_numbers_in_all_parts() -> None:
    parts = {"train": (X, ["b"] * 10), "valid": (X[:2], ["c", "a"]), "test": ([], [])}
    data = FederatedData.from_arrays({"ann": parts, "bob": {"train": (X, ["c"] * 10), "test": (X[:1], ["d"])}})
    assert data.class_names == ("a", "b", "c", "d")
    assert data.valid.targets.tolist() == [2, 0] and data.test.targets.tolist() == [3]
    assert data.train.targets.tolist() == [1] * 10 + [2] * 10


def test_a_part_that_is_none_is_refused_among_words_too() -> None:
    with pytest.raises(DataError, match="client 'ann': test examples must be a pair"):
        FederatedData.from_arrays({"ann": {"train": (X, ANN), "test": 3}})  # type: ignore[dict-item]


def test_words_may_be_sequences() -> None:
    data = FederatedData.from_arrays([(X, [["b", "a"]] * 10)])
    assert data.class_names == ("a", "b") and data.train.targets[0].tolist() == [1, 0]


def test_a_folder_may_hold_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "ann.npz", inputs=X, targets=ANN)
    np.savez(tmp_path / "bob.npz", inputs=X, targets=BOB)
    assert words_of(FederatedData.from_folder(tmp_path)) == EXPECTED
    np.savez(tmp_path / "bob.npz", inputs=X, targets=np.arange(10))
    said = r"client 'bob', file .*bob\.npz: targets are numbers, and those of client 'ann' are words: give all"
    with pytest.raises(DataError, match=said):
        FederatedData.from_folder(tmp_path)


class Pets(Dataset[Any]):
    """Examples one by one, labelled by words or by numbers."""

    def __init__(self, labels: Any, **more: Any) -> None:
        self.labels = labels
        vars(self).update(more)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return X[index], self.labels[index]


def test_a_torch_data_set_may_give_words_or_bring_class_names_along() -> None:
    data = FederatedData.from_datasets(Pets(ANN.tolist()), [0] * 5 + [1] * 5)
    assert data.class_names == ("cat", "dog")
    assert words_of(data) == {"0": EXPECTED["ann"][:5], "1": EXPECTED["ann"][5:]}
    numbers = [0, 1] * 5
    assert FederatedData.from_datasets(Pets(numbers, classes=["no", "yes"]), [0] * 10).class_names == ("no", "yes")
    assert FederatedData.from_datasets(Pets(numbers, classes=["no", "yes", "?"]), [0] * 10).class_names == ()
    assert FederatedData.from_datasets(Pets(numbers), [0] * 10).class_names == ()
    with pytest.raises(DataError, match="client '0': example 1: a label is 3 where others are words"):
        FederatedData.from_datasets(Pets(["a", 3, "b"]), [0, 0, 0])


class _Columns(dict[str, Any]):
    """A data set of the library `datasets`, as far as it is used."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def test_a_column_may_hold_words_or_have_names() -> None:
    table = _Columns(image=list(X), label=ANN.tolist())
    data = from_huggingface(table, partition=IID(clients=2))
    assert data.class_names == ("cat", "dog") and data.classes == 2
    table = _Columns(image=list(X), label=[0] * 10)
    table.features = {"label": type("ClassLabel", (), {"names": ["no", "yes"]})}  # type: ignore[attr-defined]
    data = from_huggingface(table, partition=IID(clients=2))
    assert data.class_names == ("no", "yes") and data.classes == 2


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["a", "", "b"], "client '0': a label is empty: name the class"),
        (["a", None, "b"], "client '0': a label is None where others are words"),
        (["a", float("nan"), "b"], "client '0': a label is nan where others are words"),
        ([b"\xff", b"a", b"b"], "client '0': the label .* is not UTF-8 text"),
    ],
)
def test_what_is_no_word_among_words_is_refused(targets: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        FederatedData.from_arrays([(X[:3], targets)])


def test_words_for_some_clients_only_are_refused_by_name() -> None:
    numbers = (X, np.arange(10))
    with pytest.raises(DataError, match="client 'bob': targets are numbers, and those of client 'ann' are words: "):
        FederatedData.from_arrays({"ann": (X, ANN), "bob": numbers})
    with pytest.raises(DataError, match="client 'eve': targets are words, and those of client 'bob' are numbers: "):
        FederatedData.from_arrays({"bob": numbers, "cat": numbers, "eve": (X, ANN)})
    with pytest.raises(
        DataError, match="client 'ann': test targets are numbers, and its train targets are words: "
    ):
        FederatedData.from_arrays({"ann": {"train": (X, ANN), "test": numbers}})
    with pytest.raises(DataError, match=r"there are 2 class names \(cat, dog\) and classes = 5: leave classes out"):
        FederatedData.from_arrays([(X, ANN)], classes=5)


def test_class_names_stay_with_the_data(tmp_path: Path) -> None:
    data = FederatedData.from_arrays({"ann": (X, ANN), "bob": (X, BOB)})
    for other in (data.mapped(tmp_path), FederatedData.from_mapped(tmp_path), data.only([1]), data.to()):
        assert other.class_names == NAMES
    assert data.mapped(tmp_path).fingerprint == data.fingerprint
    renamed = FederatedData.from_arrays({"ann": (X, np.char.upper(ANN)), "bob": (X, np.char.upper(BOB))})
    assert renamed.fingerprint != data.fingerprint


def test_words_are_trained_on_and_recorded() -> None:
    data = FederatedData.from_arrays({"ann": (X, ANN), "bob": (X, BOB)})
    run = dc.simulate(nn.Linear(4, 3), data, "fedavg", rounds=1, mode="vmap")
    assert run.config["data"]["class_names"] == list(NAMES)
