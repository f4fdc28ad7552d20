"""Where a page or a picture may be written: to a new file, or in the place of one that descant wrote.

What descant wrote has a mark: a page in its head, a picture where it says which program made it. The mark of a page
and of an SVG holds a checksum, so that one in which somebody has written since is kept.
"""

from __future__ import annotations

import re
from pathlib import Path
from struct import pack
from zlib import crc32

from descant.errors import SettingError
from descant.files import claim_folder, naming, write
from descant.sealed import hash_of
from descant.version import __version__

_SUFFIXES = (".html", ".htm")
_HEAD = 4096  # bytes of a file that hold our mark
_BY = f"descant {__version__}"
_MARKS = (  # of a page, as page.html says it, an SVG and a PNG
    rb'<meta name="generator" content="descant [^"]*">',
    rb"<!-- descant [^>]* -->",
    rb"tEXtSoftware\0descant ",
)
_OURS = re.compile(b"|".join(_MARKS))
_CHECKSUM = re.compile(rb", checksum ([0-9a-f]{32})(?=\">| -->)")  # in a mark, where it ends
_PNG, _PNG_HEAD = b"\x89PNG", 33  # what a PNG begins with, and the bytes before the second of its chunks
_AS_FILES = {".png": "png", ".svg": "svg", ".csv": "csv", ".md": "md", ".tex": "latex"}  # suffix -> format


def check_page(path: Path) -> None:
    """Refuse a file that is no page by its name, and one that somebody else wrote."""
    _refuse_folder(path, "report.html")
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        remedy = f"name a file that ends in .html, as in {path.with_suffix('.html')}"
        if suffix == ".pdf":
            remedy += ", and print that from a browser"
        if (format := _AS_FILES.get(suffix)) is not None:
            remedy += f", or export into a folder (--format {format} -o FOLDER, or format={format!r})"
        raise SettingError(f"'{path}': a report is written as a page of HTML: {remedy}")
    _refuse_theirs(path, "page")


def check_picture(path: Path) -> None:
    """Refuse a file that somebody else wrote; a picture, or a page with one, may have any name."""
    _refuse_folder(path, "picture.png")
    _refuse_theirs(path, "page or picture")


def write_marked(path: Path, content: str | bytes) -> None:
    """Write a page or a picture (svg, png) with the mark by which it is known as ours."""
    check_picture(path)
    claim_folder(path.parent)
    raw = _marked(content.encode() if isinstance(content, str) else content)
    write(path, lambda temporary: temporary.write_bytes(raw))


def _marked(raw: bytes) -> bytes:
    if raw.startswith(_PNG):
        said = b"tEXt" + f"Software\0{_BY}".encode()
        chunk = pack(">I", len(said) - 4) + said + pack(">I", crc32(said))
        return raw[:_PNG_HEAD] + chunk + raw[_PNG_HEAD:]
    if not _OURS.search(raw[:_HEAD]):
        if raw.startswith(b"<svg"):
            raw = raw.replace(b">", f"><!-- {_BY} -->".encode(), 1)
        else:
            raw = raw.replace(b"<head>", f'<head>\n<meta name="generator" content="{_BY}">'.encode(), 1)
    if (mark := _OURS.search(raw[:_HEAD])) is None:
        return raw
    end = mark.end() - (4 if mark[0].endswith(b" -->") else 2)
    return raw[:end] + f", checksum {hash_of(raw)}".encode() + raw[end:]


def _refuse_folder(path: Path, example: str) -> None:
    if path.is_dir():
        raise SettingError(f"'{path}' is a folder: name a file in it, as in {path / example}")


def _refuse_theirs(path: Path, what: str) -> None:
    if path.exists() and (why := _kept(path)):
        raise SettingError(
            f"'{path}' is there already, and {why.format(what)}: choose another name, or remove it first"
        )


def _kept(path: Path) -> str:
    """Why a file is not to be replaced; nothing where nothing is lost with it: it is one of ours, or empty."""
    foreign = "is no {} that descant wrote"
    if not path.is_file():  # a device, say
        return foreign
    with naming(path), path.open("rb") as file:
        head = file.read(_HEAD)
        if not head:
            return ""
        if (mark := _OURS.search(head)) is None:
            return foreign
        if (checksum := _CHECKSUM.search(mark[0])) is None:  # a PNG's, or an earlier version's
            return ""
        raw = head + file.read()
    start, stop = (mark.start() + place for place in checksum.span())
    whole = hash_of(raw[:start] + raw[stop:]) == checksum[1].decode()
    return "" if whole else "was changed since descant wrote it"
