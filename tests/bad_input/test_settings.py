"""Settings that cannot be meant, by hand: each is refused in a line that names the field, or the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.calling import COMPARISON, GOOD, descant, refused, without_training
from tests.bad_input.nonsense import COMPARED, FILES, OVERRIDES


@pytest.mark.few(60)
@pytest.mark.parametrize(("override", "said"), OVERRIDES, ids=[f"{text:.40}" for text, _ in OVERRIDES])
def test_an_override_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, override: str, said: str) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    with without_training():
        refused(descant("run", "run.yaml", "-q", "--set", override, cwd=tmp_path), said)
    assert not (tmp_path / "runs" / "run").exists()  # nothing is left of a run that did not begin


@pytest.mark.parametrize(("content", "said"), FILES, ids=range(len(FILES)))
def test_a_file_that_holds_no_run_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "run.yaml").write_bytes(content)
    with without_training():
        refused(descant("run", "run.yaml", cwd=tmp_path), said)


@pytest.mark.parametrize(("override", "said"), COMPARED, ids=[text for text, _ in COMPARED])
def test_a_comparison_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, override: str, said: str) -> None:
    (tmp_path / "two.yaml").write_text(COMPARISON)
    with without_training():
        refused(descant("compare", "two.yaml", "-q", "--set", override, cwd=tmp_path), said)


@pytest.mark.parametrize("first", ["-1", "2"])
def test_a_first_round_that_no_run_will_have_is_refused_before_anything_runs(tmp_path: Path, first: str) -> None:
    (tmp_path / "two.yaml").write_text(COMPARISON)
    (tmp_path / "bytes.yaml").write_text(f"{COMPARISON}targets: [0.5]\n")
    (tmp_path / "table.yaml").write_text(f"{COMPARISON}attacks: [sign-flip]\nfractions: [0.4]\n")
    with without_training():
        for command, file in (("compare", "two.yaml"), ("budget", "bytes.yaml"), ("robustness", "table.yaml")):
            done = descant(command, file, "-q", "--first", first, cwd=tmp_path)
            refused(done, f"--first {first}: it must be from 0 to 1, the last round of a run")
    assert not (tmp_path / "runs").exists()


def test_budgets_of_test_data_that_nobody_looks_at_are_refused_before_anything_runs(tmp_path: Path) -> None:
    text = COMPARISON.replace("ditto]", "{name: ditto, run: {evaluate: {parts: [train]}}}]")
    (tmp_path / "bytes.yaml").write_text(f"{text}targets: [0.5]\n")
    with without_training():
        done = descant("budget", "bytes.yaml", "-q", cwd=tmp_path)
    refused(done, "methods.ditto.run.evaluate.parts = ['train']: it must be parts with 'test'")
    assert not (tmp_path / "runs").exists()


def test_a_module_that_does_not_take_the_data_is_told_of_it(tmp_path: Path) -> None:
    plain = "import torch\nclass Plain(torch.nn.Module):\n    def __init__(self): pass\n"
    (tmp_path / "plain_net.py").write_text(plain)
    (tmp_path / "run.yaml").write_text(GOOD.replace("model: linear", "model: plain_net:Plain"))
    with without_training():
        done = descant("run", "run.yaml", "-q", cwd=tmp_path)
    refused(done, "it is called with the data first, as in def net(data, hidden=32)")


def test_a_file_of_the_other_command_is_pointed_to_it(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    (tmp_path / "two.yaml").write_text(COMPARISON)
    refused(descant("run", "two.yaml", cwd=tmp_path), "run the file with `descant compare`")
    refused(descant("compare", "run.yaml", cwd=tmp_path), "run the file with `descant run`")
    (tmp_path / "table.yaml").write_text(f"{COMPARISON}attacks: [sign-flip]\nfractions: [0.2]\n")
    refused(descant("compare", "table.yaml", cwd=tmp_path), "run the file with `descant robustness`")
    refused(descant("robustness", "run.yaml", cwd=tmp_path), "methods: a table of robustness needs them")


def test_figures_that_will_be_nan_are_a_line_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    attacked = ("--set", "attacks=sign-flip", "--set", "malicious=1.0")
    with without_training():
        done = descant("run", "run.yaml", "-q", *attacked, cwd=tmp_path)
    assert done.status == 0 and done.err.startswith("descant: malicious: all clients attack"), done


def test_the_good_files_of_these_tests_are_good(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    (tmp_path / "two.yaml").write_text(COMPARISON)
    with without_training():
        assert descant("run", "run.yaml", "-q", "--set", "attacks=null", cwd=tmp_path).status == 0
        assert descant("compare", "two.yaml", "-q", cwd=tmp_path).status == 0


@pytest.mark.parametrize(
    "override", ["data=", "data=3", "data.clients=0", "data.seed=run", "data=digitz", "seed=-1"]
)
def test_data_that_cannot_be_shown_are_refused_by_name(tmp_path: Path, override: str) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    more = ("--set", "seed=x") if override == "data.seed=run" else ("--set", "data.seed=run")
    more = more if "seed" in override else ()
    refused(descant("data", "show", "run.yaml", "--set", override, *more, cwd=tmp_path), "data", "seed")


def test_an_error_that_nobody_foresaw_is_a_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_part.py").write_text(
        "from dataclasses import dataclass\nfrom descant.methods import Local\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Broken(Local):\n"
        "    def client(self, down, state, local):\n        return 1 / 0\n"
    )
    (tmp_path / "run.yaml").write_text(GOOD.replace("{name: fedavg, steps: 1}", "broken_part:Broken"))
    done = descant("run", "run.yaml", "-q", "--set", "mode=loop", cwd=tmp_path)
    assert done.status == 1 and "Traceback" not in done.err
    assert "ZeroDivisionError: division by zero" in done.err and "broken_part.py, line 7" in done.err
    monkeypatch.setenv("DESCANT_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        descant("run", "run.yaml", "-q", "--set", "mode=loop", "-o", "again", cwd=tmp_path)
