"""Classes of which nobody has an example, below the highest label: noted where few, refused where most."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from descant.data import DataError, FederatedData
from descant.errors import NoFiguresWarning
from tests.bad_input.calling import descant


def client(*labels: int, n: int = 20) -> tuple[Any, Any]:
    return np.zeros((n, 2), dtype=np.float32), np.resize(labels, n)


def with_one(label: int) -> tuple[Any, Any]:
    """A client with labels 0 to 4, and one that may be wrong."""
    inputs, targets = client(*range(5))
    targets[7] = label
    return inputs, targets


@pytest.mark.parametrize(
    ("clients", "note"),
    [
        (
            {"site1": client(*range(5)), "site2": with_one(8)},
            "Classes 5 to 7 have no example; label 8 occurs once (client 'site2')",
        ),
        (
            {"site1": with_one(6), "site2": with_one(6), "site3": with_one(6)},
            "Class 5 has no example; label 6 occurs 3 times (client 'site1' and 2 others)",
        ),
        ({"site1": client(1, 2, 3)}, "Class 0 has no example"),  # counted from 1
        (
            {"site1": client(0, 2, 4, 6, 8, 9, 11, 12, 13)},
            "Classes 1, 3, 5 and 2 more have no example",
        ),
    ],
)
def test_classes_that_nobody_has_are_noted(clients: Any, note: str) -> None:
    with pytest.warns(NoFiguresWarning) as caught:
        data = FederatedData.from_arrays(clients)
    assert data.notes == (note,)
    said = f"data 'arrays': {note}: correct the labels, or set classes={data.classes} if it is meant so"
    assert [str(warning.message) for warning in caught] == [said]


def test_data_made_of_noted_data_keeps_the_note_and_does_not_say_it_again() -> None:
    with pytest.warns(NoFiguresWarning):
        data = FederatedData.from_arrays({"site1": client(1, 2), "site2": client(0, 3), "tiny": client(5, n=3)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (data.only([0]), data.to(dtype=torch.float64), data.without_tiny(2)):
            assert other.notes == data.notes == ("Class 4 has no example; label 5 occurs 3 times (client 'tiny')",)


@pytest.mark.parametrize(
    "clients",
    [
        {"site1": client(0, 1), "site2": client(2, 3)},  # each lacks what the other has
        {"site1": {"train": client(0, 2), "test": client(1)}},  # and so do parts
        {"site1": (np.zeros((9, 3), int), np.full((9, 3), 70))},  # of a vocabulary few words occur
        {"site1": (np.zeros((9, 3), int), np.full(9, 70))},  # as the next word
        {"site1": (np.zeros((9, 3), np.float32), np.full(9, 70.0))},
    ],
)
def test_what_is_no_gap_is_not_noted(clients: Any) -> None:
    assert FederatedData.from_arrays(clients).notes == ()


def test_where_most_classes_are_missing_the_label_is_refused_unless_it_is_meant() -> None:
    inputs, targets = client(0, 1, 2, n=40)
    targets[11] = 250
    clients = {"site1": client(0, 1, 2), "site2": (inputs, targets)}
    said = (
        r"client 'site2': 1 of \d+ \w+ targets hold label 250, and classes 3 to 249 have no example: .* or set "
        "classes=251 if it is meant so"
    )
    with pytest.raises(DataError, match=said):
        FederatedData.from_arrays(clients)
    meant = FederatedData.from_arrays(clients, classes=251)
    assert meant.classes == 251 and meant.notes == ()


def test_a_run_and_a_look_at_the_data_say_it(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    for name, (inputs, targets) in {"site1": client(*range(5)), "site2": with_one(6)}.items():
        np.savez(tmp_path / "sites" / f"{name}.npz", inputs=inputs, targets=targets)
    (tmp_path / "a.yaml").write_text("data: {name: folder, folder: sites}\nmethod: local\nrounds: 1\nmode: vmap\n")
    shown = descant("data", "show", "a.yaml", cwd=tmp_path)
    assert shown.status == 0 and "label 6 occurs once (client 'site2')" in " ".join(shown.out.split())
    done = descant("run", "a.yaml", "-q", cwd=tmp_path)
    assert done.status == 0
    assert "descant: data 'folder': Class 5 has no example; label 6 occurs once (client 'site2'): corr" in done.err
