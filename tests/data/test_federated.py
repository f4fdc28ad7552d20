"""FederatedData: packing, looking at it, moving it, and what it refuses."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from descant.data import DataError, FederatedData, Part
from descant.datasets import DATASETS
from descant.errors import SettingError

sizes_of_clients = st.lists(st.integers(2, 30), min_size=1, max_size=12)


def examples(n: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n examples that can be told apart, with labels 0, 1, 2 in turn."""
    ids = np.arange(start, start + n, dtype=np.float32)
    return np.stack([ids, -ids], axis=1), np.arange(start, start + n) % 3


def part(inputs: Tensor, targets: Tensor, sizes: list[int]) -> Part:
    return Part(inputs, targets, torch.tensor([0, *np.cumsum(sizes)]))


def held(data: FederatedData, k: int) -> list[float]:
    """The examples of client k over all parts, sorted."""
    rows = [data.part(name).client(k)[0][:, 0] for name in ("train", "valid", "test")]
    return torch.cat(rows).sort().values.tolist()


@settings(deadline=None)
@given(sizes_of_clients)
def test_ragged_clients_given_in_parts_come_back_as_they_were(sizes: list[int]) -> None:
    clients = [{"train": examples(n), "valid": examples(n // 2), "test": examples(n // 3)} for n in sizes]
    data = FederatedData.from_arrays(clients)
    assert len(data) == len(sizes)
    for name in ("train", "valid", "test"):
        for k, client in enumerate(clients):
            inputs, targets = data.part(name).client(k)
            assert np.array_equal(inputs, client[name][0])
            assert np.array_equal(targets, client[name][1])


@settings(deadline=None)
@given(sizes_of_clients, st.integers(0, 3))
def test_a_split_hands_out_every_example_exactly_once(sizes: list[int], seed: int) -> None:
    starts = np.cumsum([0, *sizes])
    data = FederatedData.from_arrays([examples(n, s) for n, s in zip(sizes, starts, strict=False)], seed=seed)
    for k, n in enumerate(sizes):
        assert held(data, k) == list(range(starts[k], starts[k] + n))
    for inputs, targets in ((p.inputs, p.targets) for p in (data.train, data.valid, data.test)):
        assert torch.equal(inputs[:, 0].long() % 3, targets)  # inputs and targets stay together


def test_a_client_s_split_does_not_depend_on_the_other_clients() -> None:
    full = FederatedData.from_arrays({"a": examples(20), "b": examples(30), "c": examples(9)})
    alone = FederatedData.from_arrays({"b": examples(30)})
    for name in ("train", "valid", "test"):
        assert torch.equal(full.part(name).client(1)[0], alone.part(name).client(0)[0])


def test_the_split_follows_the_seed() -> None:
    first, again, other = (FederatedData.from_arrays([examples(50)], seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert not torch.equal(first.train.inputs, other.train.inputs)


def test_clients_are_numbered_unless_named() -> None:
    assert FederatedData.from_arrays([examples(5), examples(5)]).clients == ("0", "1")
    assert FederatedData.from_arrays({"ann": examples(5)}).clients == ("ann",)


def test_classes_are_inferred_from_labels_or_given() -> None:
    assert FederatedData.from_arrays([examples(9)]).classes == 3
    assert FederatedData.from_arrays([examples(9)], classes=7).classes == 7


def test_floating_targets_are_a_regression() -> None:
    inputs, _ = examples(9)
    data = FederatedData.from_arrays([(inputs, inputs.sum(axis=1))])
    assert data.classes is None
    with pytest.raises(DataError, match="regression"):
        data.counts()


def test_small_integer_and_boolean_labels_become_int64() -> None:
    inputs, targets = examples(9)
    for kind in (np.uint8, np.int32, np.bool_):
        assert FederatedData.from_arrays([(inputs, targets.astype(kind))]).train.targets.dtype == torch.int64


def test_data_does_not_change_when_the_arrays_do() -> None:
    inputs, targets = examples(9)
    data = FederatedData.from_arrays([{"train": (inputs, targets)}])
    inputs[:] = 99
    assert data.train.inputs.max() < 99


def test_torch_tensors_lists_and_foreign_byte_orders_are_accepted() -> None:
    inputs, targets = examples(9)
    expected = FederatedData.from_arrays([(inputs, targets)]).train.inputs
    for given_inputs in (torch.from_numpy(inputs), inputs.astype(">f4"), inputs[::-1][::-1]):
        assert torch.equal(FederatedData.from_arrays([(given_inputs, targets)]).train.inputs, expected)
    assert FederatedData.from_arrays([(inputs.tolist(), targets.tolist())]).classes == 3


def test_counts_say_who_holds_what() -> None:
    inputs = np.zeros((4, 1), dtype=np.float32)
    data = FederatedData.from_arrays(
        [{"train": (inputs, [0, 0, 2, 0])}, {"train": (inputs, [1, 1, 1, 1])}], classes=4
    )
    assert data.counts().tolist() == [[3, 0, 1, 0], [0, 4, 0, 0]]


def test_counts_of_sequences_count_every_token() -> None:
    tokens = np.array([[0, 1, 1], [2, 2, 2]])
    data = FederatedData.from_arrays([{"train": (tokens, tokens)}])
    assert data.counts().tolist() == [[1, 2, 3]]
    assert data.input_shape == (3,)


def test_valid_and_test_may_be_missing_or_empty_for_some_clients_or_all() -> None:
    some = FederatedData.from_arrays(
        [{"train": examples(4), "test": examples(2)}, {"train": examples(3), "test": ([], [])}]
    )
    assert some.valid.sizes.tolist() == [0, 0]
    assert some.test.sizes.tolist() == [2, 0]
    assert some.valid.inputs.shape == (0, 2)
    assert some.valid.targets.dtype == torch.int64


def test_to_converts_floating_tensors_only() -> None:
    data = FederatedData.from_arrays([examples(9)]).to(dtype=torch.float64)
    assert data.train.inputs.dtype == data.test.inputs.dtype == torch.float64
    assert data.train.targets.dtype == torch.int64
    inputs, _ = examples(9)
    regression = FederatedData.from_arrays([(inputs, inputs[:, 0])]).to(dtype=torch.float64)
    assert regression.train.targets.dtype == torch.float64


def test_to_returns_itself_where_nothing_changes() -> None:
    data = FederatedData.from_arrays([examples(9)])
    assert data.to() is data.to(dtype=torch.float32, device="cpu") is data


def test_to_refuses_an_integer_dtype() -> None:
    with pytest.raises(SettingError, match=r"dtype = torch.int32"):
        FederatedData.from_arrays([examples(9)]).to(dtype=torch.int32)


def test_an_unknown_part_suggests_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"'tets'.*Did you mean 'test'"):
        FederatedData.from_arrays([examples(9)]).part("tets")


def test_an_unknown_client_is_refused() -> None:
    data = FederatedData.from_arrays([examples(9)])
    for k in (1, -1):
        with pytest.raises(IndexError, match="there are 1 clients"):
            data.train.client(k)


def test_the_settings_record_how_it_was_made() -> None:
    assert FederatedData.from_arrays([examples(9)], test=0.3, seed=4).settings == {
        "test": 0.3,
        "valid": 0.2,
        "seed": 4,
        "classes": None,
    }


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        (torch.tensor([0, 5]), "rise from 0 to the number of examples, 4"),
        (torch.tensor([0, 3, 2, 4]), "rise from 0"),
        (torch.tensor([1, 4]), "rise from 0"),
        (torch.tensor([0.0, 4.0]), "int64 vector"),
        (torch.tensor(4), "int64 vector"),
    ],
)
def test_offsets_that_do_not_fit_the_examples_are_refused(offsets: Tensor, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        Part(torch.zeros(4, 2), torch.zeros(4).long(), offsets)


def test_a_part_refuses_scalars_and_targets_of_another_length() -> None:
    with pytest.raises(DataError, match="first axis"):
        Part(torch.zeros(()), torch.zeros(4), torch.tensor([0, 4]))
    with pytest.raises(DataError, match="4 inputs but 3 targets"):
        Part(torch.zeros(4), torch.zeros(3), torch.tensor([0, 4]))


def test_data_put_together_by_hand_is_checked_too() -> None:
    x, y = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
    good = part(x, y, [3, 1])
    none = part(x[:0], y[:0], [0, 0])
    assert FederatedData(good, none, none).classes == 2
    with pytest.raises(DataError, match=r"client '1': no training examples"):
        FederatedData(part(x, y, [4, 0]), none, none)
    with pytest.raises(DataError, match="the valid part has 1 clients, and 2 names"):
        FederatedData(good, part(x, y, [4]), none)
    with pytest.raises(DataError, match=r"test inputs are torch.float64 of shape \(2,\), and train inputs"):
        FederatedData(good, none, part(x.double(), y, [2, 2]))
    with pytest.raises(DataError, match="cast labels to int64"):
        narrow = part(x[:0], y[:0].int(), [0, 0])
        FederatedData(part(x, y.int(), [3, 1]), narrow, narrow)
    with pytest.raises(DataError, match=r"client 'a': the name is given to two clients"):
        FederatedData(good, none, none, clients=("a", "a"))
    with pytest.raises(DataError, match="no clients"):
        FederatedData(*[part(x[:0], y[:0], [])] * 3)


def test_every_data_set_has_a_one_line_summary() -> None:
    for make in DATASETS.values():
        summary, *rest = (make.__doc__ or "").split("\n")
        assert summary.endswith(".")
        assert not rest or not rest[0].strip()


@pytest.mark.slow
def test_importing_the_data_loads_no_optional_package() -> None:
    code = "import sys, descant.data; print([m for m in ('sklearn', 'pydantic', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
