"""`verify`: whether every file of a run is what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from descant.errors import DamagedError, SettingError
from descant.experiment.folder import JOURNAL, MARKER, MODEL, MODELS, RUN, START, STORES, headless
from descant.experiment.journal import finished, unfinished
from descant.sealed import check_entry, damaged, open_tensors, read_json, read_tensors
from descant.state.leaves import ABOUT, check_leaves


def verify(folder: str | Path) -> list[str]:
    """Read every file of a run, finished or not, and return what is wrong with each that is not what was written.

    Of an unfinished run the rows of the clients are checked when it is resumed: until then they may lag behind its
    commits.
    """
    folder = Path(folder)
    wrong: list[str] = []

    def tried(check: Callable[[], object]) -> None:
        try:
            check()
        except DamagedError as error:
            wrong.append(str(error))

    if finished(folder):
        tried(lambda: _check_finished(folder, tried))
    elif unfinished(folder):
        for path in (folder / MODEL, *sorted((folder / JOURNAL).glob("*.safetensors"))):
            tried(lambda path=path: read_tensors(path))  # type: ignore[misc]
        for path in sorted((folder / MODELS).glob("*.safetensors")):
            tried(lambda path=path: open_tensors(path))  # type: ignore[misc]
        for path in [folder / START, *(folder / name / ABOUT for name in STORES if (folder / name).is_dir())]:
            tried(lambda path=path: read_json(path))  # type: ignore[misc]
    elif (lost := headless(folder)) is not None:
        wrong.append(str(lost))
    else:
        missing = f"there is no {RUN} of descant's in it, and no {START}"
        raise SettingError(f"{folder} holds no run: {missing if folder.is_dir() else 'there is no such folder'}")
    return wrong


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """The runs in some folders, finished or not, at any depth."""
    folders = list(folders)
    for folder in folders:
        if not folder.is_dir():
            why = "it is a file" if folder.exists() else "there is no such folder"
            raise SettingError(f"{folder}: {why}; give the folder of a run, or one with runs in it")
    there = {path.parent for folder in folders for name in (RUN, START) for path in folder.rglob(name)}
    found = {folder for folder in there if finished(folder) or unfinished(folder)}
    found |= {path.parent for folder in folders for path in folder.rglob(MARKER) if headless(path.parent)}
    if not found:
        raise SettingError(f"{', '.join(map(str, folders))}: there is no run in it, or below it")
    return sorted(found)


def _check_finished(folder: Path, tried: Callable[[Callable[[], object]], None]) -> None:
    about, _ = read_json(folder / RUN)
    files = about.get("files")
    if not isinstance(files, dict):
        raise damaged(folder / RUN, "is of a format without checksums, and nothing can be said about its files")
    for name, entry in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise damaged(folder / RUN, f"names a file outside its folder ({name})")
        tried(lambda name=name, entry=entry: check_entry(folder / name, entry))  # type: ignore[misc]
        if Path(name).name == ABOUT:
            tried(lambda name=name: check_leaves((folder / name).parent))  # type: ignore[misc]
