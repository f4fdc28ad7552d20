"""Clients with few examples are refused by name, left out or joined, and the data says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import descant as dc
from descant.data import DataError, FederatedData
from descant.errors import SettingError
from descant.report.page import facts

PARTS = ("train", "valid", "test")


def client(n: int, first: int) -> tuple[Any, Any]:
    rows = np.arange(first, first + n)
    return np.stack([rows, -rows], 1).astype(np.float32), rows % 2


SIZES = {"Ulm": 10, "Jena": 1, "Bonn": 20, "Köln": 3}
CLIENTS = {name: client(n, 100 * k) for k, (name, n) in enumerate(SIZES.items())}


def rows_of(data: FederatedData, name: str) -> set[float]:
    """The examples of a client, in whatever part."""
    k = data.clients.index(name)
    return {float(x[0]) for part in PARTS for x in data.part(part).client(k)[0]}


def test_they_are_refused_with_their_sizes_and_what_to_do() -> None:
    with pytest.raises(
        DataError, match=r"2 clients, 'Jena' \(1\), 'Köln' \(3\), have fewer than least=5 .*'drop'.*'pool'"
    ):
        FederatedData.from_arrays(CLIENTS, least=5)
    with pytest.raises(DataError, match=r"client 'Jena' \(1\) has fewer than least=2 examples"):
        FederatedData.from_arrays(CLIENTS, least=2)


def test_they_are_left_out_and_the_others_are_as_without_them() -> None:
    data = FederatedData.from_arrays(CLIENTS, least=5, tiny="drop")
    alone = FederatedData.from_arrays({name: CLIENTS[name] for name in ("Ulm", "Bonn")})
    assert data.fingerprint == alone.fingerprint and data.numbers is None
    assert data.notes == ("2 clients, 'Jena' (1), 'Köln' (3), have fewer than 5 examples, and were left out",)
    assert data.settings["least"] == 5 and data.settings["tiny"] == "drop"
    assert alone.notes == () and "tiny" not in alone.settings


def test_they_are_joined_before_the_split() -> None:
    data = FederatedData.from_arrays(CLIENTS, least=4, tiny="pool")
    assert data.clients == ("Ulm", "Bonn", "pooled")
    assert rows_of(data, "pooled") == {100.0, 300.0, 301.0, 302.0}
    assert data.train.sizes.tolist() == [7, 13, 3]
    joined = {name: CLIENTS[name] for name in ("Ulm", "Bonn")}
    joined["pooled"] = tuple(np.concatenate(both) for both in zip(CLIENTS["Jena"], CLIENTS["Köln"], strict=True))
    assert data.fingerprint == FederatedData.from_arrays(joined).fingerprint
    assert "were joined into one client, 'pooled'" in data.notes[0]


def test_clients_in_parts_are_joined_part_by_part() -> None:
    parts: Any = {
        "a": {"train": client(9, 0), "test": client(2, 50)},
        "b": {"train": client(1, 100), "valid": client(1, 150)},
        "c": {"train": client(2, 200), "test": client(1, 250)},
    }
    data = FederatedData.from_arrays(parts, least=4, tiny="pool")
    assert [data.part(name).sizes.tolist() for name in PARTS] == [[9, 3], [0, 1], [2, 1]]
    assert data.train.client(1)[0][:, 0].tolist() == [100, 200, 201]


def test_a_client_without_examples_is_left_out_where_that_is_asked_for() -> None:
    data = FederatedData.from_arrays(CLIENTS | {"none": client(0, 0)}, least=2, tiny="drop")
    assert data.clients == ("Ulm", "Bonn", "Köln")
    with pytest.raises(DataError, match="client 'none': no examples"):
        FederatedData.from_arrays(CLIENTS | {"none": client(0, 0)})


def test_the_name_of_the_joined_client_is_nobody_elses() -> None:
    taken = {"pooled": client(9, 500), "pooled 2": client(9, 600)}
    data = FederatedData.from_arrays(CLIENTS | taken, least=4, tiny="pool")
    assert data.clients[-1] == "pooled 3" and data.notes[0].endswith("joined into one client, 'pooled 3'")


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(DataError, match="no client has least=21 examples, and none would be left"):
        FederatedData.from_arrays(CLIENTS, least=21, tiny="drop")
    with pytest.raises(
        DataError, match=r"client 'Jena' \(1\) has fewer than least=2 examples, and not as many together"
    ):
        FederatedData.from_arrays(CLIENTS, least=2, tiny="pool")
    with pytest.raises(SettingError, match="tiny = 'merge': it must be 'refuse', 'drop' or 'pool'"):
        FederatedData.from_arrays(CLIENTS, tiny="merge")  # type: ignore[arg-type]
    for least in (0, 2.5, True):
        with pytest.raises(
            SettingError, match=f"least = {least}: it must be a whole number of examples, 1 or more"
        ):
            FederatedData.from_arrays(CLIENTS, least=least)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="client 'odd': inputs are"):
        FederatedData.from_arrays(
            CLIENTS | {"odd": (np.zeros((2, 5), np.float32), np.zeros(2, int))}, least=4, tiny="pool"
        )


def test_a_split_that_leaves_none_to_train_on_says_how_to_leave_the_client_out() -> None:
    with pytest.raises(DataError, match=r"client 'Jena': 1 example\(s\).*\(tiny='drop', least=2\)"):
        FederatedData.from_arrays(CLIENTS)
    assert "Jena" not in FederatedData.from_arrays(CLIENTS, tiny="drop", least=2).clients


sizes = st.lists(st.integers(2, 12), min_size=2, max_size=8)


def federation(sizes: list[int]) -> FederatedData:
    return FederatedData.from_arrays({f"c{k}": client(n, 100 * k) for k, n in enumerate(sizes)})


@given(sizes, st.integers(1, 12))
def test_nobody_else_loses_or_gains_an_example(sizes: list[int], least: int) -> None:
    data, few = federation(sizes), [f"c{k}" for k, n in enumerate(sizes) if n < least]
    if len(few) < len(sizes):
        dropped = data.without_tiny(least)
        assert dropped.clients == tuple(name for name in data.clients if name not in few)
        for name in dropped.clients:
            assert rows_of(dropped, name) == rows_of(data, name)
        assert dropped.numbers is None and len(dropped.notes) == bool(few)
    if few and sum(n for n in sizes if n < least) >= least:
        pooled = data.without_tiny(least, "pool")
        assert pooled.clients[-1] == "pooled"
        assert rows_of(pooled, "pooled") == {row for name in few for row in rows_of(data, name)}
        for part in PARTS:
            assert len(pooled.part(part).targets) == len(data.part(part).targets)
            x, y = pooled.part(part).inputs[:, 0], pooled.part(part).targets
            assert torch.equal(x.long() % 2, y)  # every input kept its own target


@given(sizes, st.integers(2, 12), st.permutations(range(8)))
def test_clients_of_a_larger_federation_keep_their_numbers(sizes: list[int], least: int, order: list[int]) -> None:
    some = [k for k in order if k < len(sizes)]
    part = federation(sizes).only(some)
    left = [k for k in some if sizes[k] >= least]
    if not left:
        with pytest.raises(DataError, match="none would be left"):
            part.without_tiny(least)
        return
    dropped = part.without_tiny(least)
    assert dropped.numbers is not None and dropped.numbers.tolist() == left
    assert dropped.clients == tuple(f"c{k}" for k in left)
    for place, number in enumerate(left):
        assert dropped.places(torch.tensor([number])).tolist() == [place]
        assert rows_of(dropped, f"c{number}") == rows_of(part, f"c{number}")


def test_clients_of_a_larger_federation_are_not_joined() -> None:
    with pytest.raises(
        DataError, match="some clients of a larger federation cannot be joined: join them before `only`"
    ):
        federation([9, 2, 2]).only([2, 0, 1]).without_tiny(4, "pool")


def test_done_twice_both_are_noted(tmp_path: Path) -> None:
    data = federation([12, 9, 5, 3]).without_tiny(4).without_tiny(6)
    assert [note.split(" has ")[0] for note in data.notes] == ["Client 'c3' (3)", "Client 'c2' (5)"]
    assert data.mapped(tmp_path / "mapped").notes == data.notes
    with pytest.raises(DataError, match=r"client 'c1' \(9\) has fewer than least=10"):
        data.without_tiny(10, "refuse")


def test_a_run_says_who_was_left_out(tmp_path: Path) -> None:
    data = FederatedData.from_arrays(CLIENTS, least=5, tiny="drop")
    run = dc.simulate(dc.Task(torch.nn.Linear(2, 2)), data, dc.methods.Local(), rounds=1, out=tmp_path / "run")
    for config in (run.config, dc.load(tmp_path / "run").config):
        assert config["data"]["notes"] == list(data.notes)
        assert config["data"]["settings"]["tiny"] == "drop"
    assert facts(run.config).endswith("have fewer than 5 examples, and were left out.")  # as the report says it
