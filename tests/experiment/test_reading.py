"""Settings files: how they are read, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.errors import SettingError
from descant.experiment.reading import read_settings
from descant.experiment.settings import RunSettings
from descant.methods import LpProj


def test_overrides_reach_into_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: digits\nmethod: {name: lp-proj, lam: 1.0}\nrounds: 3\n")
    values = read_settings(file, ["method.lam=0.25", "rounds=7", "data.clients=5", "cohort=null"])
    settings = RunSettings.of(values)
    assert settings.method == LpProj(lam=0.25) and settings.rounds == 7
    assert settings.data == {"name": "digits", "clients": 5} and settings.cohort is None


@pytest.mark.parametrize("override", ["rounds", "=3", "rounds.more=3"])
def test_a_bad_override_is_refused(tmp_path: Path, override: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("rounds: 3\n")
    with pytest.raises(SettingError, match="--set"):
        read_settings(file, [override])


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", ""])
def test_a_file_that_holds_no_settings_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=r"bad\.yaml"):
        read_settings(file)
    with pytest.raises(SettingError, match="cannot be read: there is no such file; give a file of settings"):
        read_settings(tmp_path / "none.yaml")
    with pytest.raises(SettingError, match=r"it is a folder; .* descant resume .* descant report"):
        read_settings(tmp_path)


def test_a_file_that_is_not_there_is_said_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"there is no such file in .*; give a file of settings"):
        read_settings(Path("none.yaml"))


def read(tmp_path: Path, text: str | bytes, *overrides: str) -> dict[str, object]:
    file = tmp_path / "run.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings(file, list(overrides))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds: 3\nseed: 1\nrounds: 4\n", r"run\.yaml, line 3: 'rounds' stands twice"),
        ("method: {name: ditto, lam: 1, lam: 2}\n", "line 1: 'lam' stands twice"),
        ("methods:\n  a: local\n  b: local\n  a: ditto\n", "line 4: 'a' stands twice"),
        ("rounds: 3\n5: 4\n", r"line 2: the key 5 is not text; put it in quotes"),
        ("methods: {1: local}\n", "the key 1 is not text"),
        ("true: 3\n", "the key true is not text"),
        ("? [a, b]\n: 3\n", "line 1: a key is not text"),
    ],
)
def test_a_key_is_text_and_stands_once(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("override", ["rounds={", "rounds=[1", "method={a: 1, a: 2}", "rounds='"])
def test_an_override_whose_value_is_no_yaml_is_refused_in_one_line(tmp_path: Path, override: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(tmp_path, "rounds: 3\n", override)
    assert str(caught.value).startswith(f"--set {override}: ") and "\n" not in str(caught.value)


def test_files_are_utf_8_whatever_the_machine_speaks(tmp_path: Path) -> None:
    assert read(tmp_path, "label: Größe λ\n".encode())["label"] == "Größe λ"
    assert read(tmp_path, b"\xef\xbb\xbfrounds: 3\n") == {"rounds": 3}
    with pytest.raises(SettingError, match=r"run\.yaml is not UTF-8 text"):
        read(tmp_path, "label: Größe\n".encode("latin-1"))


def test_a_number_with_an_exponent_needs_no_dot(tmp_path: Path) -> None:
    found = read(tmp_path, "a: 1e-3\nb: -2E+4\nc: 1.5e2\nd: 1e\ne: e3\n", "f=5e-1")
    assert found == {"a": 1e-3, "b": -2e4, "c": 150.0, "d": "1e", "e": "e3", "f": 0.5}


def test_a_merged_mapping_may_be_overridden(tmp_path: Path) -> None:
    found = read(tmp_path, "base: &b {lr: 1.0, steps: 2}\nmethod: {<<: *b, lr: 0.5}\n")
    assert found["method"] == {"lr": 0.5, "steps": 2}


def test_a_field_called_on_needs_no_quotes(tmp_path: Path) -> None:
    """In YAML 1.1 `on` is another word for true; as a key it is a name."""
    file = tmp_path / "on.yaml"
    file.write_text("attacks: {name: sign-flip, on: position}\nweighted: on\n")
    assert read_settings(file) == {"attacks": {"name": "sign-flip", "on": "position"}, "weighted": True}
