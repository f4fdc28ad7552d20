"""What a run's folder holds, and what of it is descant's own.

Only entries of these names are ever written or removed, where a marker says that descant made a run here and their
contents say that a run wrote them: a folder may hold the user's own files beside them, and a `clients/` or a
`summary.json` of the user's is none of ours.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from descant.errors import DamagedError, SettingError
from descant.experiment.ours import begins_a_run, begins_as_ours, listed, of_a_run, written_by_us
from descant.files import sync, write_bytes
from descant.sealed import damaged

MARKER = ".descant"
JOURNAL, CLIENTS, MODELS = "journal", "clients", "models"
# What lies on disk by rows: of the clients, of the server for each client, and what its codec remembers of each.
STORES = (CLIENTS, "held", "copies")
RUN, START, MODEL, SUMMARY = "run.json", "start.json", "start.safetensors", "summary.json"
_TABLES = ("rounds.parquet", "clients.parquet", "federation.parquet", "health.parquet")
_STATE, _STAMP = "state.safetensors", "files.json"
_FILES = (RUN, START, *_TABLES, _STATE, MODEL, SUMMARY, _STAMP)  # in the order in which they are removed
FOLDERS = {
    JOURNAL: re.compile(r"(commit|segment)-\d{8}\.safetensors|notes\.json"),
    MODELS: re.compile(r"(personal|shared|selected)-\d{8}\.safetensors"),
    **dict.fromkeys(STORES, re.compile(r"leaves\.json|leaf\d+\.bin|sums\.bin")),
}
_FINISHED = (*_TABLES, _STATE, SUMMARY)  # what is there only where a run was finished, or was about to be
_BEGUN = (MODELS, *STORES)  # what is there only where a run was begun
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.tmp")
_SAYS = "descant made this folder for a run. Without this file it removes nothing here.\n"
_REPLACED = "A run that lay here is being replaced.\n"


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder with an entry that has one of our names and is not of our making."""
    if (entry := _foreign(folder)) is not None:
        inside = entry.partition("/")[0] if "/" in entry else None
        why = "needs its name" if inside is None else f"has '{inside}' to itself"
        raise SettingError(
            f"out = '{folder}' holds '{entry}', which no run of descant made, and a run {why}: "
            "choose another folder, or move it away"
        )


def headless(folder: Path) -> DamagedError | None:
    """What to say of a run whose run.json or start.json is lost, where something else of it is left.

    Nothing where nothing is, and where a run is being replaced: who cut that off had let go of what lay here.
    """
    if any((folder / name).exists() for name in (RUN, START)) or _mark_of(folder) != _SAYS.encode():
        return None
    if any((folder / name).is_file() for name in _FINISHED):
        return damaged(folder / RUN, "is missing, of a run that was finished")
    if any((folder / name).is_dir() for name in _BEGUN):
        return damaged(folder / START, "is missing, of a run that was begun")
    return None


def mark(folder: Path) -> None:
    """Say that descant made what will lie here, before anything else does; and that a run there is replaced.

    Should that be cut off, what is left of the run is nothing that anybody has lost.
    """
    if any((folder / name).exists() for name in (*_FILES, *FOLDERS)):
        write_bytes(folder / MARKER, [(_SAYS + _REPLACED).encode()])
    elif _mark_of(folder) is None:
        write_bytes(folder / MARKER, [_SAYS.encode()])


def replaced(folder: Path) -> None:
    """What was to be replaced is gone."""
    if _mark_of(folder) != _SAYS.encode():
        write_bytes(folder / MARKER, [_SAYS.encode()])


def remove_run(folder: Path) -> None:
    """Remove a run, file by file: first what makes it look like one. The marker stays, and what is not ours."""
    ours = [name for name in _FILES if _is_ours(folder, name)]
    for name in ours:
        (folder / name).unlink(missing_ok=True)
        if name in (RUN, START):
            sync(folder)
    for name in FOLDERS:
        remove_folder(folder / name)
    sweep(folder)


def remove_journal(folder: Path) -> None:
    """Remove what is there only to go on with a run."""
    (folder / START).unlink(missing_ok=True)
    sync(folder)
    remove_folder(folder / JOURNAL)


def remove_folder(path: Path) -> None:
    """Remove our files in one of our sub-folders, and the folder itself unless something else is left."""
    if path.is_symlink() or not path.is_dir():
        return
    for entry in _entries(path):
        if _inside(path.name, entry):
            os.unlink(entry)
    sync(path)  # nothing of it may come back after a power cut, beside what is begun next
    if not any(path.iterdir()):
        path.rmdir()
        sync(path.parent)


def models_in(folder: Path) -> list[Path]:
    """The files of a run's models."""
    path = folder / MODELS
    names = [entry.name for entry in _entries(path)] if path.is_dir() and not path.is_symlink() else []
    return [path / name for name in sorted(names) if FOLDERS[MODELS].fullmatch(name)]


def unmark(folder: Path) -> None:
    """Nothing of ours is left."""
    (folder / MARKER).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a run's folder and its sub-folders."""
    for name in (*_FILES, MARKER):
        for temporary in folder.glob(f".{name}.*.tmp"):
            if (match := _TEMPORARY.fullmatch(temporary.name)) and match[1] == name:
                temporary.unlink(missing_ok=True)
    for path in (folder / inner for inner in FOLDERS):
        for entry in _entries(path) if path.is_dir() and not path.is_symlink() else ():
            if _TEMPORARY.fullmatch(entry.name) and _inside(path.name, entry):
                os.unlink(entry)


def _entries(path: Path) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


def _foreign(folder: Path) -> str | None:
    if os.path.lexists(folder / MARKER) and _mark_of(folder) is None and not _is_empty(folder / MARKER):
        return MARKER
    ours = _marked(folder)
    for name in (*_FILES, *FOLDERS):
        path = folder / name
        if not os.path.lexists(path):
            continue
        if not ours or path.is_symlink() or path.is_dir() != (name in FOLDERS):
            return name
        if name in _FILES and not _is_ours(folder, name):
            return name
        for entry in _entries(path) if name in FOLDERS else ():
            if not _inside(name, entry):
                return f"{name}/{entry.name}"
    return None


def _is_ours(folder: Path, name: str) -> bool:
    """Whether a file by one of our names is a run's, in a folder that is marked as ours.

    Damage does not make it somebody else's: a finished run says which files it has, and one of these is the user's
    only if it plainly is something else; an unfinished one has its model; with an empty file nobody loses anything.
    """
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return False
    if _is_empty(path):
        return True
    if name == RUN or (name == START and not of_a_run(folder / RUN)):
        return begins_a_run(path)
    if name == START:
        return of_a_run(path)
    if of_a_run(folder / RUN):
        files = listed(folder / RUN)
        if files is None:  # the first format did not say
            return True
        if name in files:
            return begins_as_ours(path)
    return (name == MODEL and of_a_run(folder / START)) or written_by_us(path)


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and path.stat().st_size == 0


def _inside(folder: str, entry: os.DirEntry[str]) -> bool:
    """Whether an entry of one of our sub-folders is a file that we write there, or its temporary one."""
    temporary = _TEMPORARY.fullmatch(entry.name)
    name = temporary[1] if temporary else entry.name
    return FOLDERS[folder].fullmatch(name) is not None and entry.is_file(follow_symlinks=False)


def _marked(folder: Path) -> bool:
    """Whether descant made a run here: its marker says so, or a run that was copied without it."""
    return _mark_of(folder) is not None or any(of_a_run(folder / name) for name in (RUN, START))


def _mark_of(folder: Path) -> bytes | None:
    """What our marker says; None where there is none, or a file by its name that is not ours."""
    path = folder / MARKER
    if path.is_symlink() or not path.is_file() or path.stat().st_size > len(_SAYS + _REPLACED):
        return None
    said = path.read_bytes()
    return said if said in (_SAYS.encode(), (_SAYS + _REPLACED).encode()) else None
