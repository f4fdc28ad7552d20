"""The program: a command, and what is said of what went wrong, without a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from typing import Any

from descant.cli.app import app
from descant.cli.console import err
from descant.errors import LeftOutWarning, MixingWarning, NoFiguresWarning, NoTieWarning, SlowWarning

TRACEBACK = "DESCANT_TRACEBACK"  # set it to see where an error came from
# Warnings that are for users, in one line.
_SAID = (LeftOutWarning, MixingWarning, NoFiguresWarning, NoTieWarning, SlowWarning)


def main() -> None:
    """Run the command line; what a user can mend is said in one line, without a traceback."""
    for kind in _SAID:
        warnings.simplefilter("always", kind)
    warnings.showwarning = _say_warning
    sys.path.append(str(Path.cwd()))  # so that `method: mine:MyMethod` is found in mine.py
    try:
        app()
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        ours = type(error).__module__.split(".")[0] == "descant"
        if not ours and isinstance(error, OSError) and error.filename is not None:
            from descant.files import told

            _say(told(error))
            sys.exit(2)
        where = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        _say(f"{error if ours else _unexpected(error)}{where}")
        sys.exit(2 if ours else 1)


def _unexpected(error: Exception) -> str:
    """An error that nobody foresaw: what it is, and where the whole story is."""
    frames = extract_tb(error.__traceback__)
    at = next((frame for frame in reversed(frames) if _of_users(Path(frame.filename))), frames[-1])
    said = " ".join(f"{type(error).__name__}: {error}".split())
    story = f"set {TRACEBACK}=1 for the whole story"
    return f"unexpected {said} ({at.filename}, line {at.lineno}); {story}"


def _of_users(file: Path) -> bool:
    """Whether a file with code is the user's own: it lies where the command was called, and is neither Python's nor
    that of an installed package."""
    others = (Path(__file__).parents[1], get_path("stdlib"), get_path("platstdlib"))
    installed = "site-packages" in file.parts or any(file.is_relative_to(folder) for folder in others)
    return file.is_relative_to(Path.cwd()) and not installed and file.suffix == ".py"


def _say(text: str) -> None:
    err.print(f"descant: {text}", markup=False, highlight=False, soft_wrap=True)


def _say_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, _SAID):
        _say(str(message))
    else:
        print(warnings.formatwarning(message, category, *where[:2]), file=sys.stderr, end="")
