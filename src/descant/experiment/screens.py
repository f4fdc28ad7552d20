"""Where progress is shown: bars on a terminal, text that updates in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from types import TracebackType
from typing import Any, Self

_PAUSE = 10.0  # seconds between two lines where there is no terminal
_BLINK = 0.2  # seconds between two updates of a notebook
_BAR = 30  # characters of a bar in a notebook


@dataclass(eq=False)
class Shown:
    """One bar: what it is of, how far it is, and what is known."""

    name: str
    total: int
    unit: str = "round"
    visible: bool = True
    done: int = 0
    note: str = ""
    began: float = 0.0
    first: int | None = None  # the first that was done here: a resumed run begins later than 1
    ended: bool = False

    def advance(self, done: int, note: str = "") -> None:
        self.first = done if self.first is None and done else self.first
        self.done, self.note = done, note

    @property
    def left(self) -> float:
        """Seconds until the end, if all goes on as until now."""
        steps = self.done - (self.first or self.done) + 1
        return (monotonic() - self.began) / steps * (self.total - self.done)

    @property
    def text(self) -> str:
        rest = f", {self.left:.0f} s left" if 0 < self.done < self.total and not self.ended else ""
        note = f", {self.note}" if self.note else ""
        return f"{self.name}: {self.unit} {self.done} of {self.total}{note}{rest}"


class Screen(ABC):
    """Shows bars from `begin` to `settle`; nothing is shown before it is entered, or after."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def begin(self, name: str, total: int, *, unit: str = "round", visible: bool = True) -> Shown:
        return Shown(name, total, unit, visible, began=monotonic())

    @abstractmethod
    def update(self, shown: Shown) -> None:
        """Something is known anew."""

    @abstractmethod
    def settle(self, shown: Shown) -> None:
        """A bar is done, and makes room."""


class Silent(Screen):
    """Shows nothing."""

    def update(self, shown: Shown) -> None:
        return None

    def settle(self, shown: Shown) -> None:
        return None


class Lines(Screen):
    """A line every ten seconds, and one at the end of every bar."""

    def __init__(self, say: Callable[[str], object] | None = None) -> None:
        self._say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self._said = monotonic()
        self._open: list[Shown] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shown in list(self._open) if error is None else ():
            self.settle(shown)

    def begin(self, name: str, total: int, *, unit: str = "round", visible: bool = True) -> Shown:
        shown = super().begin(name, total, unit=unit, visible=visible)
        if unit == "round":
            self._open.append(shown)
        return shown

    def update(self, shown: Shown) -> None:
        if shown in self._open and shown.done < shown.total and monotonic() - self._said > _PAUSE:
            self._said = monotonic()
            self._say(shown.text)

    def settle(self, shown: Shown) -> None:
        shown.ended = True
        if shown in self._open:
            self._open.remove(shown)
            self._said = monotonic()
            self._say(shown.text)


class Notebook(Screen):
    """Text that is updated in its place, through IPython alone: no widgets have to be there."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._bars: list[Shown] = []
        self._above: list[str] = []
        self._drawn = 0.0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bar in self._bars:
            bar.ended = True
        self._draw()

    def begin(self, name: str, total: int, *, unit: str = "round", visible: bool = True) -> Shown:
        shown = super().begin(name, total, unit=unit, visible=visible)
        self._bars.append(shown)
        return shown

    def update(self, shown: Shown) -> None:
        if monotonic() - self._drawn > _BLINK or shown.done == shown.total:
            self._draw()

    def settle(self, shown: Shown) -> None:
        shown.ended = True
        self._bars = [bar for bar in self._bars if bar is not shown]
        self._above.append(shown.text)
        self._draw()

    def _draw(self) -> None:
        self._drawn = monotonic()
        lines = [*self._above, *(f"{_bar(bar)} {bar.text}" for bar in self._bars if bar.visible)]
        content = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _bar(shown: Shown) -> str:
    full = round(_BAR * shown.done / max(shown.total, 1))
    return "█" * full + "░" * (_BAR - full)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; a terminal of IPython is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def screen_here() -> Screen:
    """The screen that fits where this process runs."""
    if in_notebook():
        return Notebook()
    if not sys.stderr.isatty():
        return Lines()
    from descant.experiment.terminal import Terminal

    return Terminal()
