"""A disk that is full: an error that names the file, and a run that goes on once there is room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from descant.errors import SettingError
from descant.experiment import finished, unfinished
from descant.state import MappedStore
from tests.experiment.small import begin, result, resume

SETTINGS: dict[str, Any] = {"rounds": 4, "evaluate": 2, "cohort": 2}


class Full:
    """Let the n-th call that needs room fail, and all that come after it; a write may get half its way first."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, half: bool) -> None:
        self.calls, self.number, self.half = 0, number, half
        for name in ("pwrite", "fsync", "open", "ftruncate", "mkdir"):
            patch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, call: Any) -> Any:
        def failing(*arguments: Any, **named: Any) -> Any:
            if name == "fsync":
                self.calls += 1
                if self.calls < self.number or self.calls % 2:  # some data were written and not yet laid out
                    return None
            elif name != "open" or arguments[1] & os.O_CREAT:
                self.calls += 1
            if self.calls >= self.number and (name != "open" or arguments[1] & os.O_CREAT):
                if name == "pwrite" and self.half and self.calls == self.number and len(arguments[1]) > 1:
                    return call(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
                path = [arguments[0]] if isinstance(arguments[0], str | Path) else []  # as the system's own errors
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *path)
            return call(*arguments, **named)

        return failing


CASES = [("disk", 150), *(pytest.param(store, 1, marks=pytest.mark.slow) for store in ("disk", "memory"))]


@pytest.mark.parametrize(("store", "every"), CASES)
def test_a_full_disk_is_an_error_that_names_the_file_and_no_harm(tmp_path: Path, store: str, every: int) -> None:
    begin(tmp_path / "unbroken", store=store, **SETTINGS)  # in a new process torch makes folders of its own as well
    expected = result(tmp_path / "unbroken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MappedStore, "commits_kept", 2)
        counted = Full(patch, 10**9, half=False)
        begin(tmp_path / "counted", store=store, **SETTINGS)
    assert result(tmp_path / "counted") == expected
    assert counted.calls > 50
    for number in range(1, counted.calls, every):
        folder = tmp_path / f"run{number}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MappedStore, "commits_kept", 2)
            Full(patch, number, half=number % 2 == 0)
            with pytest.raises(
                (OSError, SettingError), match=r"No space left on device|the disk is full"
            ) as caught:
                begin(folder, store=store, **SETTINGS)
        named = getattr(caught.value, "filename", None) or str(caught.value)
        assert str(tmp_path) in str(named), (number, caught.value)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)
            if unfinished(folder):
                resume(folder)
            elif not finished(folder):
                begin(folder, store=store, **SETTINGS)
        assert result(folder) == expected, number
