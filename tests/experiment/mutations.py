"""Mutations of a run's files, and what became of each (see test_mutations.py)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from descant.errors import DamagedError, SettingError
from tests.experiment.small import copied

Outcome = Callable[[Path], str]  # what is read from a folder, as text


def mutate(path: Path, draw: random.Random, others: list[Path]) -> str:
    """Change a file in one of seven ways; which."""
    raw = path.read_bytes()
    kind = draw.choice(["flip", "flip", "flip", "truncate", "zeros", "append", "empty", "missing", "other"])
    at = draw.randrange(max(1, len(raw)))
    match kind:
        case "flip":
            flipped = bytes([raw[at] ^ 1 << draw.randrange(8)]) if raw else b"x"
            path.write_bytes(raw[:at] + flipped + raw[at + 1 :])
        case "truncate":
            path.write_bytes(raw[:at])
        case "zeros":  # a page that was never written
            path.write_bytes(raw[:at] + bytes(min(64, len(raw) - at)) + raw[at + 64 :])
        case "append":
            path.write_bytes(raw + draw.randbytes(draw.randrange(1, 20)))
        case "empty":
            path.write_bytes(b"")
        case "missing":
            path.unlink()
        case "other":  # the content of another file of the run
            path.write_bytes(draw.choice(others).read_bytes())
    return kind


def attack(folder: Path, there: Path, times: int, seed: int, read: Outcome) -> tuple[Counter[str], list[str]]:
    """Mutate files of copies of a folder; how the readings ended, and those that ended badly."""
    draw = random.Random(seed)
    files = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    expected = read(copied(folder, there))
    ends: Counter[str] = Counter()
    bad: list[str] = []
    for i in range(times):
        file = files[i % len(files)]
        copied(folder, there)
        before = (there / file).read_bytes()
        kind = mutate(there / file, draw, [there / other for other in files])
        if (there / file).is_file() and (there / file).read_bytes() == before:
            continue
        try:
            end = "right" if read(there) == expected else "WRONG"
        except (DamagedError, SettingError, FileNotFoundError) as error:
            named = file.name in str(error) or str(error).startswith(f"{there / file.parent} ")
            end = "named" if named else "UNNAMED"
            end += f": {error}" if end == "UNNAMED" else ""
        except Exception as error:
            end = f"TRACEBACK: {type(error).__name__}: {error}"
        ends[end.split(":")[0]] += 1
        if end not in ("right", "named"):
            bad.append(f"{file} ({kind}): {end}")
    return ends, bad
