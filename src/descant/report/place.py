"""Where a page may be written: to a new file, or in the place of a page that descant wrote."""

from __future__ import annotations

import re
from pathlib import Path

from descant.errors import SettingError
from descant.files import naming

_SUFFIXES = (".html", ".htm")
_HEAD = 4096  # bytes of a file that hold the head of our page
_OURS = re.compile(rb'<meta name="generator" content="descant [^"]*">')  # as page.html says it
_AS_FILES = {".png": "png", ".svg": "svg", ".csv": "csv", ".md": "md", ".tex": "latex"}  # suffix -> format


def check_page(path: Path) -> None:
    """Refuse a file that is no page by its name, and one that somebody else wrote."""
    if path.is_dir():
        raise SettingError(f"'{path}' is a folder: name a file in it, as in {path / 'report.html'}")
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        remedy = f"name a file that ends in .html, as in {path.with_suffix('.html')}"
        if suffix == ".pdf":
            remedy += ", and print that from a browser"
        if (format := _AS_FILES.get(suffix)) is not None:
            remedy += f", or export into a folder (--format {format} -o FOLDER, or format={format!r})"
        raise SettingError(f"'{path}': a report is written as a page of HTML: {remedy}")
    if path.exists() and not _may_be_replaced(path):
        raise SettingError(
            f"'{path}' is there already, and is no page that descant wrote: choose another name, or remove it first"
        )


def _may_be_replaced(path: Path) -> bool:
    """Whether nothing is lost with a file: it is a page of ours, or empty."""
    with naming(path), path.open("rb") as file:
        head = file.read(_HEAD)
    return not head or _OURS.search(head) is not None
