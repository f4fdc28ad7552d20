"""The environment that pfl runs in: its own, made when it is first needed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

_HOME = Path(__file__).parent.parent / ".pfl"
_PFL = "pfl==0.6.0"


class UnavailableError(Exception):
    """pfl cannot be had here, and why."""


def python() -> Path:
    """The interpreter of the environment, with the same version of torch as here."""
    wanted = f"{_PFL} torch=={version('torch').partition('+')[0]}"
    interpreter, stamp = _HOME / "bin" / "python", _HOME / ".installed"
    if interpreter.exists() and stamp.is_file() and stamp.read_text() == wanted:
        return interpreter
    if sys.version_info >= (3, 13):
        raise UnavailableError(f"{_PFL} needs Python 3.12 or older, and this is {sys.version.split()[0]}")
    print(f"Setting up {_HOME.parent.name}/{_HOME.name} with {wanted} (minutes the first time)", flush=True)
    _call(sys.executable, "-m", "venv", "--clear", str(_HOME))
    _call(str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.split())
    stamp.write_text(wanted)
    return interpreter


def _call(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or [f"exit status {error.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise UnavailableError(
            f"could not be installed: {(errors or lines)[-1].removeprefix('ERROR: ')}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"could not be installed: {error}") from error
