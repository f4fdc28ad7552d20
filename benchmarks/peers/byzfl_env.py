"""byzfl's aggregators, loaded alone: the package as a whole wants torchvision, seaborn and more."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_HOME = Path(__file__).parent.parent / ".byzfl"
_BYZFL = "byzfl==0.0.11"
INSTALL = f"pip install --no-deps --target benchmarks/{_HOME.name} {_BYZFL}"


class UnavailableError(Exception):
    """byzfl cannot be had here, and why."""


def install() -> None:
    """Put byzfl, and nothing that it depends on, into a folder of its own."""
    if (_HOME / "byzfl" / "aggregators").is_dir():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        subprocess.run([*command, "--target", str(_HOME), _BYZFL], check=True, capture_output=True, text=True)
    except (subprocess.CalledProcessError, OSError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise UnavailableError(f"{_BYZFL} could not be installed: {lines[-1]}") from error


def load() -> tuple[Any, Any]:
    """The modules of byzfl's aggregators and of its preaggregators."""
    folder = _HOME / "byzfl"
    if not (folder / "aggregators").is_dir():
        raise UnavailableError(f"byzfl is not installed: {INSTALL}")
    package = ModuleType("byzfl")  # without the imports of its own __init__
    package.__path__ = [str(folder)]
    sys.modules["byzfl"] = package
    return import_module("byzfl.aggregators.aggregators"), import_module("byzfl.aggregators.preaggregators")


if __name__ == "__main__":
    install()
