"""Clients from data frames, of pandas and of polars alike; what is wrong is said by column and client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from descant.data import DataError, FederatedData

Columns = dict[str, list[Any]]
Frame = Callable[[Columns], Any]


def pandas_frame(columns: Columns) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(columns)


def nullable_frame(columns: Columns) -> Any:
    """pandas with its types that know a missing value."""
    return pandas_frame(columns).convert_dtypes()


def polars_frame(columns: Columns) -> Any:
    return pl.DataFrame(columns, strict=False)


@pytest.fixture(params=[polars_frame, pandas_frame, nullable_frame], ids=["polars", "pandas", "pandas nullable"])
def frame(request: pytest.FixtureRequest) -> Frame:
    made: Frame = request.param
    return made


def patients(**changed: list[Any]) -> Columns:
    """Twelve patients of three hospitals, not in order."""
    columns: Columns = {
        "age": [float(10 + i) for i in range(12)],
        "hospital": ["Ulm", "Bonn", "Ulm", "Jena", "Bonn", "Ulm", "Jena", "Bonn", "Ulm", "Jena", "Bonn", "Jena"],
        "weight": list(range(50, 62)),
        "ill": [i % 2 for i in range(12)],
    }
    return columns | changed


def read(frame: Any, **how: Any) -> FederatedData:
    return FederatedData.from_frame(frame, client="hospital", target="ill", **how)


def test_a_frame_is_its_clients_arrays(frame: Frame) -> None:
    columns = patients()
    table, whose = np.column_stack([columns["age"], columns["weight"]]), np.array(columns["hospital"])
    names = ("Bonn", "Jena", "Ulm")
    arrays = {name: (table[whose == name], np.array(columns["ill"])[whose == name]) for name in names}
    data, expected = read(frame(columns), seed=4), FederatedData.from_arrays(arrays, seed=4)
    assert data.clients == names and data.classes == 2
    assert data.fingerprint == expected.fingerprint
    settings = {"client": "hospital", "target": "ill", "features": ["age", "weight"], "seed": 4}
    assert settings.items() <= data.settings.items()


def test_features_are_chosen_in_the_order_that_is_asked_for(frame: Frame) -> None:
    data = read(frame(patients()), features=["weight", "age"], test=0, valid=0)
    row = data.train.client(2)[0]
    assert sorted(row[:, 0].tolist()) == [50, 52, 55, 58] and data.input_shape == (2,)
    assert torch.equal(row[:, 0] - 40, row[:, 1])
    assert read(frame(patients()), features=("age",)).input_shape == (1,)


def test_whole_numbers_and_truths_are_features_too(frame: Frame) -> None:
    data = read(frame(patients(age=[i % 3 == 0 for i in range(12)])), test=0, valid=0)
    assert data.train.inputs.is_floating_point()
    assert set(data.train.inputs[:, 0].tolist()) == {0.0, 1.0}


def test_words_are_classes_in_the_order_of_the_alphabet(frame: Frame) -> None:
    words = ["well", "ill", "acute"]
    data = read(frame(patients(ill=[words[i % 3] for i in range(12)])), test=0, valid=0)
    assert data.class_names == ("acute", "ill", "well") and data.classes == 3
    for inputs, target in zip(data.train.inputs, data.train.targets, strict=True):
        assert data.class_names[int(target)] == words[int(inputs[0] - 10) % 3]


def test_a_class_that_one_client_lacks_has_the_same_number_for_all(frame: Frame) -> None:
    hospital = patients()["hospital"]
    data = read(frame(patients(ill=["b" if h == "Bonn" else "a" if h == "Jena" else "c" for h in hospital])))
    assert [set(data.train.client(k)[1].tolist()) for k in range(3)] == [{1}, {0}, {2}]


def test_numbers_are_a_regression_and_truths_are_labels(frame: Frame) -> None:
    assert read(frame(patients(ill=[i / 7 for i in range(12)]))).classes is None
    data = read(frame(patients(ill=[i % 2 == 0 for i in range(12)])))
    assert data.classes == 2 and data.train.targets.dtype == torch.int64 and not data.class_names


def test_a_column_may_say_which_part_a_row_is_for(frame: Frame) -> None:
    part = ["train", "train", "test", "train", "test", "train", "valid", "train", "train", "test", "valid", "train"]
    data = read(frame(patients(part=part)), split="part")
    ages = {
        name: sorted(a - 10 for a in data.part(name).inputs[:, 0].tolist()) for name in ("train", "valid", "test")
    }
    assert ages == {name: [i for i in range(12) if part[i] == name] for name in ages}
    assert data.input_shape == (2,) and data.settings["split"] == "part"
    assert data.valid.sizes.tolist() == [1, 1, 0]


def test_clients_that_are_numbers_come_in_counting_order(frame: Frame) -> None:
    data = read(frame(patients(hospital=[10, 2, 1] * 4)))
    assert data.clients == ("1", "2", "10")
    assert read(frame(patients(hospital=[10.0, 2.0, 1.0] * 4))).clients == ("1", "2", "10")


def test_the_order_of_clients_in_the_frame_does_not_matter(frame: Frame) -> None:
    columns = patients()
    by_client = np.argsort(columns["hospital"], kind="stable")
    resorted = {name: [values[i] for i in by_client] for name, values in columns.items()}
    assert read(frame(resorted)).fingerprint == read(frame(columns)).fingerprint


def refused(frame: Any, message: str, whose: str | None = None, **how: Any) -> None:
    with pytest.raises(DataError, match=message) as caught:
        FederatedData.from_frame(frame, **{"client": "hospital", "target": "ill"} | how)
    assert caught.value.client == whose


def test_a_missing_value_names_the_column_and_the_client(frame: Frame) -> None:
    ages: list[Any] = patients()["age"]
    for i in (1, 4, 6):
        ages[i] = None
    message = r"column 'age' has 2 missing values in its rows \(and those of 1 other client\): fill them in, remove"
    refused(frame(patients(age=ages)), message, "Bonn")
    refused(frame(patients(ill=[None, *patients()["ill"][1:]])), r"the target 'ill' has 1 missing values", "Ulm")
    assert read(frame(patients(age=ages)), features=["weight"]).input_shape == (1,)


def test_nan_is_missing_and_infinity_is_refused(frame: Frame) -> None:
    ages = patients()["age"]
    refused(frame(patients(age=[float("nan"), *ages[1:]])), "column 'age' has 1 missing values", "Ulm")
    refused(frame(patients(age=[*ages[:3], float("inf"), *ages[4:]])), "column 'age' has 1 infinite values", "Jena")


def test_a_row_without_a_client(frame: Frame) -> None:
    hospital: list[Any] = patients()["hospital"]
    for unnamed in (None, " "):
        hospital[2] = hospital[5] = unnamed
        refused(
            frame(patients(hospital=hospital)), r"column 'hospital': 2 rows name no client \(the first is row 2\)"
        )
    numbers = [float("nan"), 1.0, 2.0] * 4
    refused(
        frame(patients(hospital=numbers)), r"'hospital': 4 rows name no client \(the first is row 0\): fill them"
    )


def test_features_that_are_no_numbers(frame: Frame) -> None:
    sex = patients(sex=["f", "m"] * 6)
    refused(frame(sex), r"column 'sex' holds no numbers but values such as 'f': encode it .* features=\[", "Ulm")
    days = patients(seen=[date(2024, 1, 1 + i) for i in range(12)])
    refused(frame(days), r"column 'seen' holds no numbers but values such as '2024-01-01", "Ulm")
    assert read(frame(sex), features=["age"]).input_shape == (1,)


def test_columns_that_are_not_there(frame: Frame) -> None:
    known = "it has age, hospital, weight, ill"
    refused(frame(patients()), f"client: the frame has no column 'ward'; {known}", client="ward")
    refused(frame(patients()), f"target: the frame has no column 'y'; {known}", target="y")
    refused(frame(patients()), f"features: the frame has no column 'wieght'; {known}", features=["wieght"])
    refused(frame(patients()), f"split: the frame has no column 'part'; {known}", split="part")


def test_columns_with_two_parts_to_play(frame: Frame) -> None:
    refused(frame(patients()), "features name the column 'ill', which is the target", features=["age", "ill"])
    refused(frame(patients()), "features name the column 'hospital', which is the client", features=["hospital"])
    refused(frame(patients()), "client='ill', target='ill': name different columns", client="ill")
    refused(frame(patients()), "features name the column 'age' twice", features=["age", "age"])
    for none in ([], "age"):
        refused(frame(patients()), "features: give a list of columns", features=none)
    refused(
        frame({"hospital": ["Ulm"], "ill": [1]}), "the frame has no columns besides 'hospital', 'ill' to learn from"
    )


def test_a_part_that_is_none(frame: Frame) -> None:
    part: list[Any] = ["train"] * 11 + ["validation"]
    refused(
        frame(patients(part=part)),
        "column 'part' says 'validation' in row 11: it must be train",
        "Jena",
        split="part",
    )
    part[11] = None
    refused(frame(patients(part=part)), "column 'part' says nothing in row 11", "Jena", split="part")
    part = ["test" if hospital == "Jena" else "train" for hospital in patients()["hospital"]]
    refused(frame(patients(part=part)), "no train part", "Jena", split="part")


def test_targets_that_are_neither_numbers_nor_words(frame: Frame) -> None:
    days = patients(ill=[date(2024, 1, 1 + i) for i in range(12)])
    refused(frame(days), "the target 'ill' holds '2024-01-01.*': give numbers, or a word for each class", "Ulm")


def test_an_empty_frame(frame: Frame) -> None:
    refused(frame({name: [] for name in patients()}), "the frame has no rows")


def test_what_is_no_frame() -> None:
    refused([1, 2], "the frame is a list: give a data frame of pandas or polars")
    refused("data.csv", r"the frame is the path 'data\.csv': read it first, as with polars\.read_csv")
    refused(pl.DataFrame(patients()).lazy(), r"the frame is lazy: collect it first")


def test_columns_of_polars_that_are_no_single_numbers() -> None:
    lists = pl.DataFrame(patients()).with_columns(pl.Series("scan", [[1.0, 2.0]] * 12, pl.Array(pl.Float64, 2)))
    refused(lists, r"column 'scan' holds \(2,\) values a row: give each a column of its own")
    exact = pl.DataFrame(patients()).with_columns(pl.Series("age", [Decimal("1.5")] * 12))
    assert set(read(exact).train.inputs[:, 0].tolist()) == {1.5}
    words = pl.DataFrame(patients()).with_columns(pl.Series("ill", ["b", "a"] * 6, pl.Categorical))
    assert read(words).class_names == ("a", "b")


def test_columns_of_pandas_that_are_called_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame(np.zeros((3, 4)), columns=["hospital", "age", "age", "ill"])
    refused(twice, "the frame has two columns called 'age'")
    numbered = pandas.DataFrame(np.arange(24).reshape(8, 3) % 2)
    data = FederatedData.from_frame(numbered, client=0, target=2)
    assert data.clients == ("0", "1") and data.settings["features"] == ["1"]
