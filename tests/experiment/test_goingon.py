"""How it is said that an unfinished run can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.experiment.goingon import resume_call, resume_command
from descant.sealed import write_json


@pytest.mark.parametrize(
    ("settings", "method", "more"),
    [
        (None, "mine:M", ", task, data, allow_imports=True"),
        (None, "fedavg", ", task, data"),
        ({"rounds": 3}, "mine:M", ", allow_imports=True"),
        ({"rounds": 3}, "fedavg", ""),
    ],
)
def test_what_a_run_needs_to_go_on_is_in_the_call(
    tmp_path: Path, settings: dict[str, int] | None, method: str, more: str
) -> None:
    write_json(tmp_path / "start.json", {"config": {"settings": settings, "method": {"name": method}}})
    assert resume_call(tmp_path) == f"descant.resume({str(tmp_path)!r}{more})"
    allowed = "--allow-imports " if ":" in method else ""
    in_python = f"in Python: {resume_call(tmp_path)}"
    assert resume_command(tmp_path) == (f"descant resume {allowed}{tmp_path}" if settings else in_python)
