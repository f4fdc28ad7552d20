"""Data in memory-mapped files: the same data, opened again without copying."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError, FederatedData
from descant.data.mapped import _SAYS
from descant.datasets import DATASETS, synthetic


@pytest.fixture
def data() -> FederatedData:
    rng = np.random.default_rng(0)
    clients = {
        f"c{k}": (rng.normal(size=(n, 2, 3)).astype("float32"), np.arange(n) % 3) for k, n in enumerate((9, 30))
    }
    return FederatedData.from_arrays(clients, name="mine")


def assert_same(one: FederatedData, other: FederatedData) -> None:
    assert (one.clients, one.classes, one.name) == (other.clients, other.classes, other.name)
    assert one.settings == other.settings and one.fingerprint == other.fingerprint
    for part in ("train", "valid", "test"):
        for field in ("inputs", "targets", "offsets"):
            values, wanted = (getattr(data.part(part), field) for data in (one, other))
            assert values.equal(wanted) and values.dtype == wanted.dtype


def test_mapped_data_is_the_same_data(data: FederatedData, tmp_path: Path) -> None:
    assert_same(data.mapped(tmp_path), data)
    assert_same(FederatedData.from_mapped(tmp_path), data)
    assert_same(DATASETS["mapped"](folder=str(tmp_path)), data)
    assert replace(FederatedData.from_mapped(tmp_path)).fingerprint == data.fingerprint  # hashed anew


def test_a_regression_without_validation_data_can_be_mapped(tmp_path: Path) -> None:
    x = np.eye(4)
    data = FederatedData.from_arrays([{"train": (x, x[:, :1]), "test": (x, x[:, :1])}])
    assert_same(data.mapped(tmp_path), data)


def test_files_that_are_there_are_not_written_again(data: FederatedData, tmp_path: Path) -> None:
    data.mapped(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    data.mapped(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_a_folder_with_other_data_is_refused(data: FederatedData, tmp_path: Path) -> None:
    data.mapped(tmp_path)
    other = data.to(dtype=torch.float64)
    with pytest.raises(DataError, match="holds other data"):
        other.mapped(tmp_path)


def test_writing_to_mapped_tensors_leaves_the_files_as_they_are(data: FederatedData, tmp_path: Path) -> None:
    data.mapped(tmp_path).train.inputs.zero_()
    assert FederatedData.from_mapped(tmp_path).train.inputs.equal(data.train.inputs)


def test_what_is_missing_or_truncated_is_named(data: FederatedData, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"folder = .*: there is no such folder: give"):
        FederatedData.from_mapped(tmp_path / "none")
    data.mapped(tmp_path)
    (tmp_path / "test.inputs.bin").write_bytes(b"abc")
    with pytest.raises(DataError, match=r"test\.inputs\.bin has 3 bytes"):
        FederatedData.from_mapped(tmp_path)
    (tmp_path / "test.inputs.bin").unlink()
    with pytest.raises(DataError, match=r"test\.inputs\.bin is missing"):
        FederatedData.from_mapped(tmp_path)


def test_synthetic_clients_drawn_into_files_are_those_drawn_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("descant.datasets.synthetic")
    monkeypatch.setattr(module, "_BLOCK", 3)
    settings = {"clients": 7, "samples": 20, "seed": 5}
    assert_same(synthetic(**settings, folder=tmp_path), synthetic(**settings))
    monkeypatch.setattr(module, "save", None)  # not written again
    assert_same(synthetic(**settings, folder=tmp_path), synthetic(**settings))
    with pytest.raises(DataError, match="holds other data"):
        synthetic(**settings | {"seed": 6}, folder=tmp_path)


@pytest.mark.parametrize("name", ["train.inputs.bin", "test.offsets.bin", "data.json", ".descant-data"])
@pytest.mark.parametrize("link", [False, True])
def test_a_file_of_the_users_by_one_of_the_names_is_kept_and_named(
    data: FederatedData, tmp_path: Path, name: str, link: bool
) -> None:
    folder, mine = tmp_path / "large", tmp_path / "mine"
    folder.mkdir()
    mine.write_text("mine")
    if link:
        (folder / name).symlink_to(mine)
    else:
        (folder / name).write_text("mine")
    for lay in (lambda: data.mapped(folder), lambda: synthetic(clients=2, samples=8, folder=folder)):
        with pytest.raises(DataError, match=rf"{name}: .*choose another folder, or move it away"):
            lay()
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == mine.read_text() == "mine" and (folder / name).is_symlink() == link


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1}', "{"])
def test_a_list_of_another_program_is_no_error_of_pythons(data: FederatedData, tmp_path: Path, text: str) -> None:
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(
        DataError, match=r"data\.json: it says nothing of data that descant laid down, or is damaged"
    ):
        data.mapped(tmp_path)


def test_what_was_cut_off_is_laid_down_anew(
    data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("descant.data.mapped.sync", cut_off)
        data.mapped(tmp_path)
    assert (tmp_path / "train.inputs.bin").exists() and not (tmp_path / "data.json").exists()
    assert torch.equal(data.mapped(tmp_path).train.inputs, data.train.inputs)
    assert not (tmp_path / ".descant-data").exists()


def test_the_marker_of_a_process_killed_at_the_very_end_is_removed(data: FederatedData, tmp_path: Path) -> None:
    data.mapped(tmp_path)
    marker = tmp_path / ".descant-data"
    marker.write_text(_SAYS)
    assert_same(data.mapped(tmp_path), data)
    assert not marker.exists()
    marker.write_text("mine")
    assert_same(data.mapped(tmp_path), data)
    assert marker.read_text() == "mine"


@pytest.mark.parametrize("name", ["train.inputs.bin", "test.offsets.bin", "data.json"])
def test_nothing_is_written_through_a_link_where_data_were_cut_off(
    data: FederatedData, tmp_path: Path, name: str
) -> None:
    folder, mine = tmp_path / "large", tmp_path / "mine"
    folder.mkdir()
    (folder / ".descant-data").write_text(_SAYS)
    (folder / name).symlink_to(mine)  # leads nowhere yet
    for text in (None, "mine"):
        if text is not None and name != "data.json":
            mine.write_text(text)
        with pytest.raises(DataError, match=rf"{name}: it is there already, .*choose another folder"):
            data.mapped(folder)
        assert (folder / name).is_symlink() and (not mine.exists() or mine.read_text() == "mine")
