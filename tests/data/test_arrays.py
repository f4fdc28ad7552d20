"""Bad arrays are refused, and the error names the client, the field and what to do."""

from typing import Any

import numpy as np
import pytest
import torch

from descant.data import DataError, FederatedData

GOOD = (np.zeros((6, 3), dtype=np.float32), np.array([0, 1, 2, 0, 1, 2]))


def refused(bad: Any, message: str, **settings: Any) -> None:
    """The client 'bad' is refused, alone or beside a good one."""
    with pytest.raises(DataError, match=message) as caught:
        FederatedData.from_arrays({"good": GOOD, "bad": bad}, **settings)
    assert caught.value.client == "bad"
    assert "client 'bad'" in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_not_finite(value: float) -> None:
    inputs = GOOD[0].copy()
    inputs[4, 1] = value
    refused((inputs, GOOD[1]), r"1 of \d (train|valid|test) inputs hold NaN or infinity")


def test_a_regression_target_that_is_not_finite() -> None:
    targets = np.array([1.0, 2.0, np.nan])
    client = {"train": (np.zeros((3, 2)), targets)}
    with pytest.raises(DataError, match=r"client '1': 1 of 3 train targets hold NaN"):
        FederatedData.from_arrays([{"train": (np.zeros((3, 2)), np.ones(3))}, client])


def test_the_first_guilty_client_is_named_past_empty_ones() -> None:
    good, bad = np.zeros((2, 1)), np.full((2, 1), np.nan)
    clients = [
        {"train": (good, [0, 1]), "test": (inputs, [0, 1]) if inputs is not None else ([], [])}
        for inputs in (good, None, None, bad, good)
    ]
    with pytest.raises(DataError, match=r"client '3': 2 of 2 test inputs"):
        FederatedData.from_arrays(clients)


def test_inputs_of_another_shape() -> None:
    refused((np.zeros((6, 4), dtype=np.float32), GOOD[1]), r"shape \(4,\).*client 'good'.*shape \(3,\)")


def test_inputs_of_another_dtype() -> None:
    refused((GOOD[0].astype(np.float64), GOOD[1]), "inputs are float64 .* are float32")


def test_labels_beside_floating_targets() -> None:
    refused((GOOD[0], GOOD[1].astype(np.float32)), "targets are float32 .* are int64")


def test_parts_of_another_shape() -> None:
    with pytest.raises(DataError, match=r"client '0': test inputs are float32 of shape \(4,\)"):
        FederatedData.from_arrays([{"train": GOOD, "test": (np.zeros((6, 4), dtype=np.float32), GOOD[1])}])


def test_inputs_and_targets_of_different_lengths() -> None:
    refused((GOOD[0], GOOD[1][:5]), "6 inputs but 5 targets")


def test_an_empty_client() -> None:
    none = (GOOD[0][:0], GOOD[1][:0])
    refused(none, r"no examples: .* leave it out \(tiny='drop', least=1\)")
    assert FederatedData.from_arrays({"good": GOOD, "bad": none}, tiny="drop", least=1).clients == ("good",)


def test_an_empty_train_part() -> None:
    with pytest.raises(DataError, match=r"client '0': no train examples: .* leave it out$"):
        FederatedData.from_arrays([{"train": (GOOD[0][:0], GOOD[1][:0]), "test": GOOD}])


def test_a_client_too_small_to_train_after_the_split() -> None:
    refused((GOOD[0][:1], GOOD[1][:1]), r"1 example\(s\), of which test=0.2 and valid=0.2 leave none")


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range(label: int) -> None:
    remedy = "number the labels from 0, or " + ("leave these examples out" if label < 0 else "raise classes")
    refused((GOOD[0], np.full(6, label)), rf"targets hold label {label} outside \[0, 3\): {remedy}$", classes=3)


def test_a_negative_label_where_classes_are_inferred() -> None:
    refused((GOOD[0], np.array([-1, 0, 1, 0, 1, 0])), r"label -1 outside \[0, 3\): .*or leave these examples out$")


@pytest.mark.parametrize("code", [99_999, 10**12])
def test_a_label_that_would_make_far_more_classes_than_there_are_labels_is_refused(code: int) -> None:
    inputs, targets = np.zeros((20, 3), dtype=np.float32), np.arange(20) % 3
    missing = np.where(targets == 2, code, targets)  # a code for what is missing
    clients = {"Ulm": (inputs, targets), "Bonn": (inputs, missing)}
    said = rf"client 'Bonn': \d+ of \d+ \w+ targets hold label {code}, and there are 40 labels in all: .*\(classes="
    with pytest.raises(DataError, match=said):
        FederatedData.from_arrays(clients)
    assert FederatedData.from_arrays(clients, classes=code + 1).classes == code + 1, "where it is meant"


def test_labels_that_are_not_integers() -> None:
    with pytest.raises(DataError, match=r"classes=3 but the targets are torch.float64, not integer labels"):
        FederatedData.from_arrays([(GOOD[0], GOOD[1] + 0.5)], classes=3)


@pytest.mark.parametrize("values", [np.array(list("abcdef")), np.zeros(6, dtype=complex), [object()] * 6])
def test_values_that_are_not_numbers(values: Any) -> None:
    refused((values, GOOD[1]), "inputs are .*: convert them to one of bool")


def test_ragged_lists() -> None:
    refused(([[1.0], [1.0, 2.0]], [0, 1]), "not a rectangular array of numbers")


def test_a_torch_type_that_numpy_does_not_know() -> None:
    refused((torch.zeros(6, 3, dtype=torch.bfloat16), GOOD[1]), "not a rectangular array of numbers")


def test_a_single_number() -> None:
    refused((1.0, 0), "single number")


@pytest.mark.parametrize("client", [GOOD[0], (GOOD[0],), (*GOOD, GOOD[1]), "text"])
def test_a_client_that_is_not_a_pair(client: Any) -> None:
    refused(client, r"must be a pair \(inputs, targets\)")


def test_a_part_with_an_unknown_name() -> None:
    with pytest.raises(DataError, match=r"client '0': no part is called 'validation'"):
        FederatedData.from_arrays([{"train": GOOD, "validation": GOOD}])


def test_a_client_without_a_train_part() -> None:
    with pytest.raises(DataError, match=r"client '0': no train part"):
        FederatedData.from_arrays([{"test": GOOD}])


def test_whole_clients_beside_clients_in_parts() -> None:
    with pytest.raises(DataError, match=r"client 'b': comes as \(inputs, targets\)"):
        FederatedData.from_arrays({"a": {"train": GOOD}, "b": GOOD})


def test_no_clients() -> None:
    for nobody in ([], {}):
        with pytest.raises(DataError, match="no clients"):
            FederatedData.from_arrays(nobody)


def test_a_name_that_is_not_text() -> None:
    with pytest.raises(DataError, match=r"names must be strings, and 7 is not"):
        FederatedData.from_arrays({7: GOOD})  # type: ignore[dict-item]
