"""One process at a time in a run's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from descant.errors import BusyError, SettingError


class Lock:
    """Held until `release`, or until the process ends in whatever way."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY)
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                raise BusyError(
                    f"another process is at work on the run in {folder}: wait for it, or choose another folder"
                ) from None
            except OSError as error:
                os.close(self._descriptor)
                raise SettingError(
                    f"the file system of {folder} has no locks ({error.strerror}), so that two processes could "
                    "spoil each other's run: choose a folder on another"
                ) from None

    def release(self) -> None:
        os.close(self._descriptor)


def at_work(folder: Path) -> bool:
    """Whether another process is at work in a folder now."""
    if not folder.is_dir():
        return False
    try:
        Lock(folder).release()
    except BusyError:
        return True
    return False
