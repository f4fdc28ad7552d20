"""`descant export` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bad_input.calling import descant


def test_a_run_is_exported_by_one_command(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "data: {name: synthetic, clients: 4, samples: 30}\nmethod: ditto\nrounds: 2\nmode: vmap\n"
    )
    assert descant("run", "small.yaml", "-q", cwd=tmp_path).status == 0
    done = descant("export", "runs/small", "out", "--client", "1", "--client", "3", "--round", "last", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "4 files, and out/index.json, which lists them" in done.out
    one = descant("export", "runs/small", "one", "--client", "1", "--weights-only", cwd=tmp_path)
    assert one.out == "1 file, and one/index.json, which lists it\n"
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert [(entry["client"], entry["round"]) for entry in index["models"]] == [("1", 2), ("3", 2)]
    again = descant("export", "runs/small", "out", "--weights-only", cwd=tmp_path)
    assert again.status == 2 and "is there already" in again.err and "Traceback" not in again.err
    wrong = descant("export", "runs/nothing", "out", cwd=tmp_path)
    assert wrong.status == 2 and "holds no finished run" in wrong.err
