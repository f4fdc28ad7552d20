"""Clients from a torch data set and an assignment of its examples."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from descant.data import DataError, FederatedData

X, Y = torch.arange(24, dtype=torch.float32).reshape(12, 2), torch.arange(12) % 3
TENSORS = TensorDataset(X, Y)
IDS = [0, 1, 0, 1, -1, 0, 1, 0, -1, 1, 0, 1]
LISTS = [[0, 2, 5, 7, 10], [1, 3, 6, 9, 11]]


class Pairs(Dataset[Any]):
    """A data set that gives its examples one by one."""

    def __init__(self, pairs: list[Any]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index]


PAIRS = Pairs([(x, int(y)) for x, y in zip(X, Y, strict=True)])


def held(data: FederatedData, k: int) -> list[float]:
    parts = (data.train, data.valid, data.test)
    return sorted(x / 2 for part in parts for x in part.client(k)[0][:, 0].tolist())


@pytest.mark.parametrize("dataset", [TENSORS, PAIRS], ids=["tensors", "pairs"])
@pytest.mark.parametrize(
    "assignment",
    [IDS, np.array(IDS), torch.tensor(IDS), LISTS, np.array(LISTS), [torch.tensor(ids) for ids in LISTS]],
    ids=["ids", "id array", "id tensor", "lists", "list array", "list of tensors"],
)
def test_every_client_gets_its_examples(dataset: Dataset[Any], assignment: Any) -> None:
    data = FederatedData.from_datasets(dataset, assignment)
    assert [held(data, 0), held(data, 1)] == LISTS
    assert torch.equal(data.train.inputs[:, 0].long() // 2 % 3, data.train.targets)


def test_one_by_one_or_at_once_is_the_same_data() -> None:
    at_once, one_by_one = (FederatedData.from_datasets(dataset, IDS) for dataset in (TENSORS, PAIRS))
    assert torch.equal(at_once.train.inputs, one_by_one.train.inputs)
    assert at_once.clients == one_by_one.clients == ("0", "1")
    assert at_once.settings["dataset"] == "TensorDataset"


class Doubled(TensorDataset):
    """A TensorDataset whose examples are not its tensors' rows."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return 2 * x, y


def test_a_data_set_that_transforms_its_examples_is_read_through_its_transform() -> None:
    plain, doubled = (FederatedData.from_datasets(kind(X, Y), IDS) for kind in (TensorDataset, Doubled))
    assert torch.equal(doubled.train.inputs, 2 * plain.train.inputs)


def test_the_split_is_that_of_arrays() -> None:
    data = FederatedData.from_datasets(TENSORS, LISTS, seed=5)
    arrays = FederatedData.from_arrays([(X[rows], Y[rows]) for rows in LISTS], seed=5)
    assert torch.equal(data.test.inputs, arrays.test.inputs)


def test_unused_examples_are_not_read() -> None:
    dataset = Pairs([*PAIRS.pairs, "not an example"])
    assert len(FederatedData.from_datasets(dataset, [*IDS, -1])) == 2


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (IDS[:-1], "11 client ids and the data set 12 examples"),
        ([-2, *IDS[1:]], "example 0 to client -2, which is out of range"),
        ([*IDS[:-1], 12], "example 11 to client 12, which is out of range"),
        ([-1] * 12, "leaves every example unused"),
        ([0.0] * 12, "must be a flat sequence of integers, not float64"),
        (["Ulm"] * 12, "the first 'Ulm': give numbers from 0 on, or the examples of each name, as in {'Ulm': "),
        ([], "assignment is empty"),
        ([0, 2] * 6, r"client '1': the assignment gives it no examples"),
        ([[0, 1, 2], []], r"client '1': the assignment gives it no examples"),
        ([[], [0, 1, 2]], r"client '0': the assignment gives it no examples"),
        ([[0, 1, 2], [3, 12]], r"client '1': example 12 does not exist: .* 0 to 11"),
        ([[0, 1, 2], [3, -1]], r"client '1': example -1 does not exist"),
        ([[0, 1, 2], [3, 1]], r"client '1': example 1 is assigned twice \(also to client '0'\)"),
        ([[0, 0]], r"client '0': example 0 is assigned twice"),
        ([[0, 1], [2.5, 3.0]], "the indices of client 1 must be a flat sequence of integers"),
    ],
)
def test_an_assignment_that_does_not_fit(assignment: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FederatedData.from_datasets(TENSORS, assignment)


def spoiled(index: int, example: Any) -> Pairs:
    pairs = list(PAIRS.pairs)
    pairs[index] = example
    return Pairs(pairs)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ((torch.zeros(3), 0), r"client '1': inputs are float32 of shape \(3,\)"),
        ((torch.zeros(2), 0.5), r"client '1': targets are float64"),
        ((torch.full((2,), torch.nan), 0), r"client '1': .* inputs hold NaN"),
        ((torch.zeros(2), -3), r"client '1': .* label -3 outside"),
        (("text", 0), r"client '1': inputs of example 3 are <U4"),
        (torch.zeros(2), r"client '1': example 3 of the data set is a Tensor, not a pair"),
    ],
)
def test_a_bad_example_names_its_client(example: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FederatedData.from_datasets(spoiled(3, example), IDS)


def test_a_client_too_small_for_the_split_is_named() -> None:
    with pytest.raises(DataError, match=r"client '1': 1 example\(s\)"):
        FederatedData.from_datasets(TENSORS, [[0, 1, 2], [3]])


def test_bad_values_in_tensors_name_the_client() -> None:
    inputs: Tensor = X.clone()
    inputs[6] = torch.inf
    with pytest.raises(DataError, match=r"client '1': 1 of \d \w+ inputs hold NaN or infinity"):
        FederatedData.from_datasets(TensorDataset(inputs, Y), IDS)


BY_NAME = {"Ulm": LISTS[0], "Bonn": LISTS[1]}


@pytest.mark.parametrize("dataset", [TENSORS, PAIRS], ids=["tensors", "pairs"])
def test_clients_by_name_hold_their_examples(dataset: Dataset[Any]) -> None:
    data = FederatedData.from_datasets(dataset, BY_NAME, seed=5)
    assert data.clients == ("Ulm", "Bonn") and [held(data, 0), held(data, 1)] == LISTS
    arrays = FederatedData.from_arrays({name: (X[rows], Y[rows]) for name, rows in BY_NAME.items()}, seed=5)
    assert data.fingerprint == arrays.fingerprint
    arrayed = {name: np.array(rows) for name, rows in BY_NAME.items()}
    assert FederatedData.from_datasets(dataset, arrayed, seed=5).fingerprint == data.fingerprint


def test_clients_by_name_may_be_in_parts() -> None:
    parts = {"Ulm": {"train": [0, 2], "valid": [5], "test": [7, 10]}, "Bonn": {"test": [], "train": [3, 1]}}
    for dataset in (TENSORS, PAIRS):
        data = FederatedData.from_datasets(dataset, parts)
        assert [data.part(name).sizes.tolist() for name in ("train", "valid", "test")] == [[2, 2], [1, 0], [2, 0]]
        assert torch.equal(data.train.inputs, X[[0, 2, 3, 1]]) and torch.equal(data.test.targets, Y[[7, 10]])


def test_clients_whose_names_are_numbers() -> None:
    assert FederatedData.from_datasets(TENSORS, {7: LISTS[0], 3: LISTS[1]}).clients == ("7", "3")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            {"Ulm": [0, 12], "Bonn": [1]},
            "client 'Ulm': example 12 does not exist: the data set has examples 0 to 11",
        ),
        ({"Ulm": [0, 1], "Bonn": [1]}, r"client 'Bonn': example 1 is assigned twice \(also to client 'Ulm'\)"),
        ({"Ulm": {"train": [0], "test": [0]}}, "client 'Ulm': example 0 is assigned twice"),
        ({"Ulm": [0, 1, 2], "Bonn": []}, "client 'Bonn': no examples"),
        ({"Ulm": {"train": [0]}, "Bonn": {"test": [1]}}, "client 'Bonn': no train part"),
        ({"Ulm": {"train": [0]}, "Bonn": {"train": [], "test": [1]}}, "client 'Bonn': no train examples"),
        ({"Ulm": {"train": [0]}, "Bonn": {"validation": [1]}}, "client 'Bonn': no part is called 'validation'"),
        ({"Ulm": {"train": [0]}, "Bonn": [1]}, "client 'Bonn': comes as .*, where client .* comes in parts"),
        ({"Ulm": [0.5]}, "client 'Ulm': the indices must be a flat sequence of integers, not float64"),
        ({"Ulm": {"train": [[0]]}}, "client 'Ulm': the train indices must be a flat sequence of integers"),
        ({"1": [0, 2], 1: [1, 3]}, "two clients have one name, as text and as a number"),
        ({}, "the assignment gives nobody an example"),
        ({"Ulm": []}, "the assignment gives nobody an example"),
    ],
)
def test_mistakes_in_an_assignment_by_name(assignment: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FederatedData.from_datasets(TENSORS, assignment)


def test_an_example_that_is_none_names_its_client() -> None:
    with pytest.raises(DataError, match="client 'Bonn': example 12 of the data set is a str"):
        FederatedData.from_datasets(Pairs([*PAIRS.pairs, "not an example"]), {"Ulm": [0, 1], "Bonn": [12]})


@pytest.mark.parametrize("assignment", [{"a": [0, 2, 5, 7], "b": [1]}, [[0, 2, 5, 7], [1]]], ids=["names", "lists"])
def test_tiny_clients_of_a_data_set(assignment: Any) -> None:
    data = FederatedData.from_datasets(TENSORS, assignment, least=2, tiny="drop")
    assert len(data) == 1 and held(data, 0) == [0, 2, 5, 7] and len(data.notes) == 1
