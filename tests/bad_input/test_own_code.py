"""Mistakes in a user's own code and data: whose they are is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import descant as dc
from descant.cli.main import _of_users
from descant.data import DataError
from descant.errors import TaskError
from tests.bad_input.calling import Done, descant, refused

MISTAKEN = """
from dataclasses import dataclass
from descant.methods import Local

@dataclass(frozen=True, kw_only=True)
class Mistaken(Local):
    def step(self, v, grad):
        return v - 0.1 * grad(v).view(7, -1)
"""
SETTINGS = {
    "data": {"name": "folder", "folder": "clients", "least": 4, "tiny": "drop"},
    "model": "linear",
    "rounds": 1,
}


def fine(done: Done) -> Done:
    assert done.status == 0, done
    return done


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "clients").mkdir()
    rng = np.random.default_rng(0)
    for k, n in enumerate((3, 10, 12)):
        inputs, targets = rng.normal(size=(n, 2)).astype(np.float32), np.arange(n) % 2
        np.savez(tmp_path / "clients" / f"site {k}.npz", inputs=inputs, targets=targets)
    return tmp_path


def test_a_mistake_of_a_method_in_a_comparison_names_it_its_seed_and_the_users_line(place: Path) -> None:
    (place / "mistaken_one.py").write_text(MISTAKEN)
    methods = {"alone": {"name": "local", "steps": 1}, "mine": {"name": "mistaken_one:Mistaken", "steps": 1}}
    (place / "c.yaml").write_text(json.dumps(SETTINGS | {"methods": methods, "seeds": 1}))
    done = descant("compare", "c.yaml", "-q", cwd=place)
    assert done.status and "in the run of 'mine' (seed 0)" in done.err, done
    assert "mistaken_one.py, line 8" in done.err, done.err


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "mistake",
    [
        "__import__('fractions').Fraction('none')",
        "__import__('installed_two').fail()",
        "__import__('descant.files').files.told(None)",
    ],
    ids=["of Python", "of a package", "of descant"],
)
def test_the_users_line_is_named_where_the_command_is_called_above_the_files_of_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """The mistake comes out in these, and they lie below the root as well."""
    for folder, name in ((place, "mistaken_two"), (place / "site-packages", "installed_two")):
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
    (place / "site-packages").mkdir()
    (place / "site-packages" / "installed_two.py").write_text("def fail():\n    raise ValueError\n")
    (place / "mistaken_two.py").write_text(MISTAKEN.replace("return", f"{mistake} #"))
    method = {"name": "mistaken_two:Mistaken", "steps": 1}
    data = {"name": "folder", "folder": str(place / "clients")}
    (place / "d.yaml").write_text(json.dumps(SETTINGS | {"data": data, "method": method}))
    done = descant("run", str(place / "d.yaml"), "--out", str(place / "out"), "-q", cwd=Path("/"))
    assert done.status == 1 and "unexpected" in done.err and "mistaken_two.py, line 8" in done.err, done.err


def test_a_file_of_a_package_below_the_current_folder_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _of_users(tmp_path / "mine.py") and _of_users(tmp_path / "more" / "mine.py")
    assert not _of_users(tmp_path / "venv" / "lib" / "site-packages" / "installed.py")
    assert not _of_users(tmp_path.parent / "mine.py") and not _of_users(tmp_path / "<string>")


def test_what_is_noted_of_the_data_stands_below_a_comparison(place: Path) -> None:
    (place / "c.yaml").write_text(json.dumps(SETTINGS | {"methods": {"alone": {"name": "local", "steps": 1}}}))
    told = "'site 0' (3) has fewer than 4 examples, and was left out"
    said = " ".join(fine(descant("compare", "c.yaml", "-q", cwd=place)).out.split())
    assert f"Note: Client {told}" in said, said
    assert "left out" in fine(descant("compare", "c.yaml", "--json", cwd=place)).out


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_the_share_that_is_advised_leaves_examples_to_train_on(n: int) -> None:
    clients = {name: (np.ones((k, 2)), np.arange(k) % 2) for name, k in {"few": n, "many": 150}.items()}
    with pytest.raises(DataError, match=r"leave none to train on: .* lower test to [\d.]+") as refused:
        dc.FederatedData.from_arrays(clients, test=0.99, classes=2)
    advised = float(str(refused.value).split("lower test to ")[1].split()[0].rstrip(","))
    assert (advised == 0) == (n == 1)
    assert dc.FederatedData.from_arrays(clients, test=advised, classes=2).train.sizes.min() > 0


def test_whole_numbers_that_a_model_cannot_take_are_named() -> None:
    data = dc.FederatedData.from_arrays([(np.ones((9, 3), np.int64), np.arange(9) % 2)] * 2)
    with pytest.raises(TaskError, match=r"the inputs are torch\.int64: should they be float32\?"):
        dc.simulate(dc.models.linear(data), data, "local", rounds=1)


def test_text_is_no_file_and_a_folder_that_is_not_there_is_named(place: Path) -> None:
    (place / "d.yaml").write_text(json.dumps(SETTINGS | {"method": "local"}))
    done = descant("data", "show", "d.yaml", "-o", "h.html", "--format", "text", cwd=place)
    refused(done, "--format text and --out = 'h.html': text is printed, and a file is a chart")
    refused(descant("resume", "runs/none", cwd=place), "runs/none holds no run: there is no such folder")
    refused(descant("export", "clients", "models", cwd=place), "clients holds no finished run")
    fine(descant("run", "d.yaml", "--out", "runs/one", "-q", cwd=place))
    refused(descant("export", "runs", "models", cwd=place), "give one of the runs in it, as runs/one")


def test_a_mistake_of_a_method_in_a_run_names_it_and_its_seed_once(place: Path) -> None:
    (place / "mistaken_three.py").write_text(MISTAKEN.replace("return", "1 / 0 #"))
    method = {"name": "mistaken_three:Mistaken", "steps": 1}
    (place / "e.yaml").write_text(json.dumps(SETTINGS | {"method": method, "seed": 4, "label": "mine"}))
    done = descant("run", "e.yaml", "--out", "out", "-q", cwd=place)
    assert done.status == 1 and "ZeroDivisionError" in done.err and "mistaken_three.py, line 8" in done.err, (
        done.err
    )
    assert done.err.count("in the run of 'mine' (seed 4)") == done.err.count("in the run of") == 1, done.err
    (place / "f.yaml").write_text(json.dumps(SETTINGS | {"methods": {"mine": method}, "seeds": 1}))
    done = descant("compare", "f.yaml", "-q", cwd=place)
    assert done.err.count("in the run of 'mine' (seed 0)") == done.err.count("in the run of") == 1, done.err
