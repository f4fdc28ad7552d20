"""Data flows one way through the package: no room imports from one that comes after it."""

import ast
from pathlib import Path

import pytest

import descant

SOURCE = Path(descant.__file__).parent
ORDER = [
    *("version", "errors", "notensor", "fields", "importing", "sorting", "draws", "mirrors", "rotation"),
    *("rounding", "threads"),
    *("files", "written", "sealed"),
    *("fingerprint", "metrics", "trees", "values", "data", "datasets", "models", "task", "context", "mail"),
    *("hooks", "coupling", "methods", "saying"),
    *("attacks", "codecs", "aggregators", "execution", "state", "engine", "signatures", "kinds", "lookup"),
    *("catalog", "listing"),
    *("experiment", "callbacks", "theory", "report", "comparison", "robust", "cli"),
]
# descant.data offers the data sets by name as it did before they had a room of their own, when somebody asks; and a
# run draws its own report, when somebody asks.
ALLOWED = {("data/__init__.py", "datasets"), ("experiment/run.py", "report")}


def rooms_imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "descant" and len(parts) > 1 and parts[1] in ORDER:
                found.add(parts[1])
    return found


def test_every_room_has_its_place() -> None:
    rooms = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix in ("", ".py")}
    assert rooms - {"__init__", "__main__", "__pycache__"} == set(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_nothing_imports_from_a_later_room(room: str) -> None:
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").is_file() else sorted((SOURCE / room).rglob("*.py"))
    assert files
    for file in files:
        where = file.relative_to(SOURCE).as_posix()
        later = {name for name in rooms_imported(file) if ORDER.index(name) > ORDER.index(room)}
        later = {name for name in later if (where, name) not in ALLOWED}
        assert not later, f"{where} imports from {sorted(later)}"
