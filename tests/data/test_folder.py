"""A folder of .npz files: the round trip, and damaged, pickled or incomplete files refused by name."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from descant.data import DataError, FederatedData

X, Y = np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10) % 2


def refused(folder: Path, message: str) -> None:
    """The folder is refused, and the error names the client 'bad' and its file."""
    with pytest.raises(DataError, match=message) as caught:
        FederatedData.from_folder(folder)
    assert caught.value.client == "bad"
    assert f"client 'bad', file {folder / 'bad.npz'}: " in str(caught.value)


def test_whole_clients_are_read_as_from_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "ann.npz", inputs=X, targets=Y)
    np.savez_compressed(tmp_path / "bob.npz", inputs=X + 1, targets=1 - Y)
    data = FederatedData.from_folder(tmp_path, seed=3)
    expected = FederatedData.from_arrays({"ann": (X, Y), "bob": (X + 1, 1 - Y)}, seed=3)
    assert data.clients == ("ann", "bob")
    for part in ("train", "valid", "test"):
        assert torch.equal(data.part(part).inputs, expected.part(part).inputs)
        assert torch.equal(data.part(part).targets, expected.part(part).targets)
    assert data.settings["folder"] == str(tmp_path)


def test_clients_in_parts_are_read_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_inputs=X, train_targets=Y, test_inputs=X[:3], test_targets=Y[:3])
    data = FederatedData.from_folder(str(tmp_path), classes=5)
    assert np.array_equal(data.train.inputs, X)
    assert np.array_equal(data.test.targets, Y[:3])
    assert data.valid.sizes.tolist() == [0]
    assert data.classes == 5


def test_numbered_clients_come_in_counting_order(tmp_path: Path) -> None:
    for name in ("10", "2", "02", "0", "user_10", "user_9"):
        np.savez(tmp_path / f"{name}.npz", inputs=X, targets=Y)
    assert FederatedData.from_folder(tmp_path).clients == ("0", "02", "2", "10", "user_9", "user_10")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=X, targets=Y)
    (tmp_path / "README.md").write_text("about the data")
    assert len(FederatedData.from_folder(tmp_path)) == 1


def test_a_folder_that_is_missing_or_has_no_clients(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no .npz file"):
        FederatedData.from_folder(tmp_path)
    with pytest.raises(DataError, match=r"folder = .*: there is no such folder: give a folder with one \.npz"):
        FederatedData.from_folder(tmp_path / "elsewhere")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_truncated_anywhere(tmp_path: Path, share: float) -> None:
    np.savez_compressed(tmp_path / "bad.npz", inputs=X, targets=Y)
    file = tmp_path / "bad.npz"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    # Of the first bytes alone nobody can tell what they were.
    refused(tmp_path, r"cannot be read as .npz .*: write it again|is no .npz file: write it with numpy.savez$")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_file_with_one_wrong_byte_is_refused_or_unharmed(tmp_path: Path, share: float, flip: int) -> None:
    np.savez_compressed(tmp_path / "bad.npz", inputs=X, targets=Y)
    file = tmp_path / "bad.npz"
    damaged = bytearray(file.read_bytes())
    damaged[int(share * len(damaged))] ^= flip
    file.write_bytes(damaged)
    expected = FederatedData.from_arrays({"bad": (X, Y)})
    try:
        data = FederatedData.from_folder(tmp_path)
    except DataError as error:
        assert str(file) in str(error)
    else:
        assert torch.equal(data.train.inputs, expected.train.inputs)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_text("inputs,targets\n1,2\n")
    refused(tmp_path, "is no .npz file: write it with numpy.savez$")  # numpy says how to unpickle it


def test_a_single_array_under_the_wrong_ending(tmp_path: Path) -> None:
    with open(tmp_path / "bad.npz", "wb") as file:
        np.save(file, X)
    refused(tmp_path, r"cannot be read as .npz")


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    bomb = np.array([Bomb(tmp_path / "exploded")], dtype=object)
    np.savez(tmp_path / "bad.npz", inputs=bomb, targets=Y[:1])
    refused(tmp_path, "holds pickled objects, which are never loaded")
    assert not (tmp_path / "exploded").exists()


def test_missing_keys(tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, inputs=X)
    refused(tmp_path, "missing key 'targets'")
    np.savez(file, train_inputs=X)
    refused(tmp_path, "missing key 'train_targets'")
    np.savez(file, train_inputs=X, train_targets=Y, test_targets=Y)
    refused(tmp_path, "missing key 'test_inputs'")
    np.savez(file, test_inputs=X, test_targets=Y)
    refused(tmp_path, "missing key 'train_inputs'")


def test_a_client_both_whole_and_in_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", inputs=X, targets=Y, test_inputs=X)
    refused(tmp_path, "holds both a whole client and parts of it")


def test_keys_that_nobody_reads(tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, inputs=X, targets=Y, weights=Y)
    refused(tmp_path, "unexpected key 'weights'")
    np.savez(file, train_inputs=X, train_targets=Y, validation_inputs=X)
    refused(tmp_path, "unexpected key 'validation_inputs'")


def test_bad_values_name_the_file_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "ann.npz", inputs=X, targets=Y)
    np.savez(tmp_path / "bad.npz", inputs=np.full_like(X, np.nan), targets=Y)
    refused(tmp_path, r"inputs hold NaN .* \(the first is row 0 of inputs, counted from 0\)")
    for part, of in (("", "inputs"), ("train_", "train_inputs")):
        bad = X.copy()
        bad[2:, 1] = np.inf
        np.savez(tmp_path / "bad.npz", **{f"{part}inputs": bad, f"{part}targets": Y})
        if part:
            np.savez(tmp_path / "ann.npz", train_inputs=X, train_targets=Y)
        refused(tmp_path, rf"inputs hold NaN .* \(the first is row 2 of {of}, counted from 0\)")
    np.savez(tmp_path / "ann.npz", inputs=X, targets=Y)
    np.savez(tmp_path / "bad.npz", inputs=X[:, :1], targets=Y)
    refused(tmp_path, r"shape \(1,\)")
    np.savez(tmp_path / "bad.npz", inputs=X[:0], targets=Y[:0])
    refused(tmp_path, "no examples")
    np.savez(tmp_path / "bad.npz", inputs=X, targets=-Y)
    refused(tmp_path, "label -1 outside")


def test_one_file_of_another_form_is_refused_by_its_name(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", inputs=X, targets=Y)
    np.savez(tmp_path / "bad.npz", train_inputs=X, train_targets=Y)
    refused(tmp_path, r"comes in parts, where client 'a' comes as \(inputs, targets\)")


def test_one_file_of_another_type_says_how_to_mend_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", inputs=X, targets=Y)
    np.savez(tmp_path / "bad.npz", inputs=X.astype(np.float64), targets=Y)
    refused(tmp_path, r"give all clients the same, as with inputs\.astype\('float32'\)")


def test_a_folder_of_tables_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("client,x,y\n")
    with pytest.raises(DataError, match=r"such as data\.csv .* FederatedData\.from_frame"):
        FederatedData.from_folder(tmp_path)
