"""What could not be carried out as asked, kept beside the journal of a run until it is finished."""

from __future__ import annotations

from pathlib import Path

from descant.sealed import read_json, write_json

_FILE = Path("journal") / "notes.json"


def keep_notes(folder: Path, notes: list[str]) -> None:
    """Write the notes down where there are new ones."""
    if len(notes) > len(kept_notes(folder)):
        write_json(folder / _FILE, {"notes": notes})


def kept_notes(folder: Path) -> list[str]:
    """The notes that an interrupted run left."""
    path = folder / _FILE
    return [str(note) for note in read_json(path)[0].get("notes", [])] if path.is_file() else []
