"""The settings files of Hush that need no trials, and what the program that writes them cannot do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from descant.experiment.attackgrid import attack_grid
from descant.experiment.grid import comparison
from descant.experiment.settings import read_settings
from tests.examples.test_examples import EXAMPLES, inside, python


def test_the_programs_can_be_tried_on_the_digits_of_the_example() -> None:
    asked = inside("hush/choose.py")["DATA"]["digits"]
    example = read_settings(EXAMPLES / "hush.yaml")
    assert asked == {name: example[name] for name in ("data", "model", "rounds", "cohort")}


def test_hush_is_compared_on_digits_at_equal_gradients() -> None:
    grid = comparison(read_settings(EXAMPLES / "hush.yaml"), None)
    assert len(grid.cells) == 3 * 13
    for cell in grid.cells[::3]:
        cell.check()


def test_hush_and_ditto_are_attacked_under_the_same_aggregators() -> None:
    settings = read_settings(EXAMPLES / "hush" / "attacks.yaml")
    defences = {
        name: [spec["run"]["aggregator"] for spec in settings["methods"].values() if spec["name"] == name]
        for name in ("hush", "ditto")
    }
    assert defences["hush"] == defences["ditto"] and len(defences["hush"]) == 6
    # twelve methods: clean and under four attacks; what trains alone has nothing to forge, and is run twice
    assert len(attack_grid(settings).grid.cells) == 5 * (12 * 5 + 2)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("attacks", "mnist-20", "."), "no trial to take from .: none was run to its end"),
        (("attacks", "runs/trials"), "there is no data called 'runs/trials'. Known: chars, cifar, digits"),
        (("trials", "mnist20"), "there is no data called 'mnist20'. Did you mean 'mnist-20'?"),
        (("best", "mnist-20", "."), "no trial to take from ."),
        (("best", "mnist-20", "nothing"), "there is no folder nothing: give the one that descant compare"),
        (
            ("best", "mnist-20"),
            "choose.py best takes the folder of the trials, as in: choose.py best mnist-20 runs",
        ),
        (("trials", "mnist-20", "Local", "Nope"), "no method has Nope in its label. There are: Local; one model"),
        (("trials", "mnist-20", "--short"), "mnist-20 has no short trials: its runs are short. There are some of"),
        (("narrow", "mnist-20", "."), "mnist-20 has no short trials"),
        (
            ("trials", "mnist-20", "--partial"),
            "--partial goes with what chooses from trials: leave it out of trials",
        ),
        (("attacks", "cifar", ".", "--short"), "--short goes with trials and best: leave it out of attacks"),
        (("parts", "mnist-20", "fast"), "'fast' is no rate: give a positive number"),
        (("parts", "mnist-20", "0"), "'0' is no rate"),
        (("parts", "hapt"), "the rate of Hush is missing: give a positive number, as in: choose.py parts hapt 0.1"),
        (
            ("tirals", "mnist-20"),
            "no command called 'tirals'. Did you mean 'trials'? Known: attacks, best, narrow,",
        ),
        (("trials",), "name the data, as in: choose.py trials mnist-20. There are digits, mnist-20, mnist-60"),
        ((), "Data: digits, mnist-20, mnist-60"),
        (("--help",), "Data: digits, mnist-20, mnist-60"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)
def test_what_the_choice_of_hush_cannot_do_is_said(said: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=re.escape(told)):
        python("hush/choose.py", *said, cwd=tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["mnist-20", "cifar"])
def test_parts_of_hush_are_changed_one_at_a_time(name: str, tmp_path: Path) -> None:
    (tmp_path / "parts.yaml").write_text(python("hush/choose.py", "parts", name, "0.1", cwd=tmp_path))
    settings = read_settings(tmp_path / "parts.yaml")
    plain, *changed = settings["methods"].values()
    assert plain["name"] == "hush" and plain["lr"] == 0.1
    projected = [spec for spec in changed if spec["name"] == "one-projection"]
    parts = ("name", "m", "bits", "rotate")  # of what the plain one says, what is changed in some
    same = {name: value for name, value in plain.items() if name not in parts}
    assert all(spec | same == spec != plain and plain.keys() <= spec.keys() for spec in changed)
    assert [spec.get("feedback") for spec in projected] == [None, False] and changed[-2:] == projected
    assert len(comparison(settings, None).cells) == 5 * (1 + len(changed))
