"""The clients' state: in memory or in files, the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from descant.errors import DamagedError
from descant.sealed import Digests, read_tensors, row_digests, write_tensors
from descant.state.store import ClientStore, MappedStore
from descant.trees import Tree

N = 9


def first(who: Tensor) -> Tree:
    """Client k starts at k."""
    return {"v": who[:, None].expand(-1, 3).double(), "n": who}


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStore:
    return ClientStore(N, first) if request.param == "memory" else MappedStore(N, first, tmp_path / "clients")


def rows(who: Tensor, value: float) -> Tree:
    return {"v": torch.full((len(who), 3), value, dtype=torch.float64), "n": torch.full((len(who),), int(value))}


def test_a_client_that_was_never_written_has_its_first_state(store: ClientStore) -> None:
    who = torch.tensor([4, 0, 8])
    assert store.gather(who)["v"].equal(first(who)["v"]) and store.gather(who)["n"].equal(who)
    assert not store.touched.any()


def test_what_is_scattered_and_settled_is_gathered_and_others_keep_what_they_had(store: ClientStore) -> None:
    store.scatter(torch.tensor([1, 2, 7]), rows(torch.arange(3), 50.0))
    store.settle()
    found = store.gather(torch.tensor([7, 3, 1]))
    assert found["v"][:, 0].tolist() == [50, 3, 50] and found["n"].tolist() == [50, 3, 50]
    assert store.touched.nonzero().squeeze(1).tolist() == [1, 2, 7]
    assert store.leaves["n"].tolist() == [0, 50, 50, 3, 4, 5, 6, 50, 8]


def test_a_gathered_row_is_a_copy(store: ClientStore) -> None:
    store.scatter(torch.tensor([1]), rows(torch.arange(1), 50.0))
    store.settle()
    for k in (0, 1):
        before = store.gather(torch.tensor([k]))["v"].clone()
        store.gather(torch.tensor([k]))["v"].fill_(-1)
        assert store.gather(torch.tensor([k]))["v"].equal(before)


def test_clients_without_state_are_counted_all_the_same(tmp_path: Path) -> None:
    for store in (ClientStore(N, lambda who: {}), MappedStore(N, lambda who: {}, tmp_path)):
        store.scatter(torch.tensor([3]), {})
        assert store.changed()[0].tolist() == [3] and store.gather(torch.tensor([3])) == {}
        store.settle()
        assert store.touched[3] and store.leaves == {}


def test_what_must_be_committed_is_everything_in_memory_and_the_last_round_on_disk(tmp_path: Path) -> None:
    for store, expected in ((ClientStore(N, first), [1, 2]), (MappedStore(N, first, tmp_path), [2])):
        for k in (1, 2):
            store.scatter(torch.tensor([k]), rows(torch.arange(1), 10.0 * k))
            who, changed = store.changed()
            store.settle()
        assert who.tolist() == expected and changed["n"].tolist() == [10 * k for k in expected]


def test_files_change_only_when_they_are_told_to(tmp_path: Path) -> None:
    store = MappedStore(N, first, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    store.scatter(torch.tensor([1, 2]), rows(torch.arange(2), 50.0))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    store.settle()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} != before


def test_files_are_opened_again_as_they_were(tmp_path: Path) -> None:
    store = MappedStore(N, first, tmp_path)
    store.scatter(torch.tensor([0, 1, 5, 8]), rows(torch.arange(4), 50.0))
    store.settle()
    again = MappedStore(N, first, tmp_path)
    assert again.leaves["v"].equal(store.leaves["v"]) and again.touched.equal(store.touched)
    with pytest.raises(ValueError, match=r"leaves\.json describes the clients of another run"):
        MappedStore(N + 1, first, tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    MappedStore(N, first, tmp_path)
    (tmp_path / "leaf0.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"leaf0\.bin has 0 bytes"):
        MappedStore(N, first, tmp_path)


def test_a_million_clients_take_no_space_until_they_are_written(tmp_path: Path) -> None:
    store = MappedStore(1_000_000, lambda who: {"v": torch.zeros(len(who), 600)}, tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 2e9
    store.scatter(torch.tensor([999_999]), {"v": torch.ones(1, 600)})
    store.settle()
    assert store.gather(torch.tensor([999_999, 5]))["v"].sum(1).tolist() == [600, 0]
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) < 1e6


def test_digests_are_those_of_the_rows_whatever_was_written_before(store: ClientStore) -> None:
    g = torch.Generator().manual_seed(0)
    for value in range(1, 8):
        store.scatter(torch.randperm(N, generator=g)[:3].sort().values, rows(torch.arange(3), float(value)))
        who, changed = store.changed()
        found = store.digests(who, changed)
        assert {name: row_digests(leaf).tolist() for name, leaf in changed.items()} == {
            name: digests.tolist() for name, digests in found.items()
        }
        store.settle()


def test_a_row_in_memory_is_looked_at_once_for_all_commits_until_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    def counted(rows: Tensor) -> Digests:
        looked.append(len(rows))
        return row_digests(rows)

    monkeypatch.setattr("descant.state.store.row_digests", counted)
    store = ClientStore(N, first)
    for who, expected in (([0, 1, 2, 3], [4, 4]), ([2], [1, 1]), ([3, 5], [2, 2])):
        store.scatter(torch.tensor(who), rows(torch.arange(len(who)), 7.0))
        looked.clear()
        store.digests(*store.changed())
        assert looked == expected  # of both leaves


def test_a_file_with_digests_of_other_rows_is_refused(tmp_path: Path) -> None:
    tensors = {"rows": torch.arange(6.0).view(3, 2), "rest": torch.ones(4)}
    path = tmp_path / "some.safetensors"
    write_tensors(path, tensors, {"a": 1}, {"rows": row_digests(tensors["rows"])})
    read, about, _ = read_tensors(path)
    assert about == {"a": 1} and all(read[name].equal(leaf) for name, leaf in tensors.items())
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(DamagedError):
            read_tensors(path)
    write_tensors(path, tensors, {}, {"rows": row_digests(tensors["rows"] + 1)})
    with pytest.raises(DamagedError, match="checksum"):
        read_tensors(path)


def test_rows_of_another_type_are_those_of_the_store(tmp_path: Path) -> None:
    """A method may return a leaf in double precision that its clients started with in single."""
    store = MappedStore(N, lambda who: {"v": torch.zeros(len(who), 2)}, tmp_path / "clients")
    who = torch.tensor([2, 5])
    store.scatter(who, {"v": torch.full((2, 2), 1 / 3, dtype=torch.float64)})
    store.digests(*store.changed())
    store.settle()
    store.flush(1)
    store.files.check(torch.empty(0, dtype=torch.int64), store.files.others(torch.empty(0, dtype=torch.int64)))
    reopened = MappedStore(N, lambda who: {"v": torch.zeros(len(who), 2)}, tmp_path / "clients")
    reopened.files.check(who, reopened.files.others(who))


def test_a_truth_value_with_a_flipped_bit_is_damage_though_it_is_still_true(tmp_path: Path) -> None:
    store = MappedStore(N, first, tmp_path / "clients")
    store.scatter(torch.tensor([2]), rows(torch.arange(1), 7.0))
    store.settle()
    store.flush(1)
    nobody = torch.empty(0, dtype=torch.int64)
    (touched,) = [file for file in (tmp_path / "clients").glob("leaf*.bin") if file.stat().st_size == N]
    raw = bytearray(touched.read_bytes())
    raw[2] = 3
    touched.write_bytes(raw)
    reopened = MappedStore(N, first, tmp_path / "clients").files
    with pytest.raises(DamagedError, match="the row of client 2"):
        reopened.check(nobody, reopened.others(nobody))
