"""A file system that loses its power: what was done to a folder, and what may be left of it (see test_power.py)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch


@dataclass
class Step:
    """One call: on the content of a file (by number) or on the entries of a folder (by path)."""

    kind: str  # data, size, sync; enter, leave, rename, folder, syncdir
    file: int = -1
    path: str = ""
    at: int = 0
    raw: bytes = b""
    other: str = ""

    @property
    def parent(self) -> str:
        return os.path.dirname(self.path)


@dataclass
class Recorder:
    """The calls of the system below a folder, in order."""

    root: str
    steps: list[Step] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # what a path leads to now

    @contextmanager
    def recording(self) -> Iterator[None]:
        calls: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "pwrite": self._pwrite,
            "ftruncate": self._ftruncate,
            "fsync": self._fsync,
            "replace": self._replace,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
        }
        originals = {name: getattr(os, name) for name in calls}

        def both(name: str) -> Callable[..., Any]:
            return lambda *arguments, **named: calls[name](originals[name], *arguments, **named)

        patches = [patch.object(os, name, both(name)) for name in calls]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()

    def _below(self, path: Any) -> str | None:
        text = os.path.abspath(os.fspath(path))
        return os.path.relpath(text, self.root) if text.startswith(self.root) else None

    def _of(self, descriptor: int) -> str | None:
        return self._below(os.readlink(f"/proc/self/fd/{descriptor}"))

    def _open(self, call: Any, path: Any, flags: int, mode: int = 0o777, **named: Any) -> Any:
        name, existed = self._below(path), os.path.exists(path)
        result = call(path, flags, mode, **named)
        if name is not None and flags & os.O_CREAT:
            if not existed:
                self.names[name] = len(self.steps)
                self.steps.append(Step("enter", self.names[name], name))
            elif flags & os.O_TRUNC:
                self.steps.append(Step("size", self.names[name]))
        return result

    def _pwrite(self, call: Any, descriptor: int, raw: Any, offset: int) -> Any:
        if (name := self._of(descriptor)) is not None:
            self.steps.append(Step("data", self.names[name], at=offset, raw=bytes(raw)))
        return call(descriptor, raw, offset)

    def _ftruncate(self, call: Any, descriptor: int, size: int) -> Any:
        if (name := self._of(descriptor)) is not None:
            self.steps.append(Step("size", self.names[name], at=size))
        return call(descriptor, size)

    def _fsync(self, call: Any, descriptor: int) -> Any:
        if (name := self._of(descriptor)) is not None:
            folder = os.path.isdir(os.path.join(self.root, name))
            self.steps.append(Step("syncdir", path=name) if folder else Step("sync", self.names[name]))
        return None  # the real disk need not be waited for

    def _replace(self, call: Any, source: Any, target: Any) -> Any:
        result, old, new = call(source, target), self._below(source), self._below(target)
        if old is not None and new is not None:
            self.names[new] = self.names.pop(old)
            self.steps.append(Step("rename", self.names[new], new, other=old))
        return result

    def _unlink(self, call: Any, path: Any, **named: Any) -> Any:
        result, name = call(path, **named), self._below(path)
        if name is not None:
            self.steps.append(Step("leave", self.names.pop(name), name))
        return result

    def _mkdir(self, call: Any, path: Any, mode: int = 0o777, **named: Any) -> Any:
        result, name = call(path, mode, **named), self._below(path)
        if name is not None:
            self.steps.append(Step("folder", path=name))
        return result

    def _rmdir(self, call: Any, path: Any, **named: Any) -> Any:
        result, name = call(path, **named), self._below(path)
        if name is not None:
            self.steps.append(Step("leave", path=name))
        return result


def cut(steps: list[Step], after: int, draw: random.Random, ordered: bool, to: Path) -> None:
    """Lay into a folder what a power cut after some steps may leave.

    Ordered: the steps took effect in their order, up to any point since the last wait for the disk. Unordered: each
    did or did not, unless its own file or its own folder was waited for later.
    """
    done = steps[:after]
    if ordered:
        waits = [i for i, step in enumerate(done) if step.kind in ("sync", "syncdir")]
        kept = done[: draw.randint(waits[-1] + 1 if waits else 0, after)]
    else:
        kept = [step for i, step in enumerate(done) if _waited(step, done[i + 1 :]) or draw.random() < 0.5]
    contents: dict[int, bytearray] = {}
    entries: dict[str, int | None] = {".": None}  # None is a folder
    for step in kept:
        raw = contents.setdefault(step.file, bytearray())
        match step.kind:
            case "data":
                raw.extend(bytes(max(0, step.at + len(step.raw) - len(raw))))
                raw[step.at : step.at + len(step.raw)] = step.raw
            case "size":
                raw[:] = raw[: step.at].ljust(step.at, b"\0")
            case "enter":
                entries[step.path] = step.file
            case "rename":
                entries.pop(step.other, None)
                entries[step.path] = step.file
            case "folder":
                entries[step.path] = None
            case "leave":
                entries.pop(step.path, None)
    for name in sorted(entries, key=lambda name: name.count("/")):
        if entries[name] is None and (to / name).parent.is_dir():
            (to / name).mkdir(exist_ok=True)
        elif (file := entries[name]) is not None and (to / name).parent.is_dir():
            (to / name).write_bytes(contents.get(file, b""))


def _waited(step: Step, later: list[Step]) -> bool:
    if step.kind in ("sync", "syncdir"):
        return True
    if step.kind in ("data", "size"):
        return any(other.kind == "sync" and other.file == step.file for other in later)
    parent = step.parent or "."
    return any(other.kind == "syncdir" and other.path == parent for other in later)
