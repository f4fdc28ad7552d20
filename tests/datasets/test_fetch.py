"""Downloads from a server on this machine: resumed, verified, unpacked, and explained where they fail."""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

from descant import files
from descant.data import DataError
from descant.datasets import DATASETS
from descant.datasets.fetch import NEEDS, fetch, fetch_file
from descant.datasets.sources import SOURCES, Download, Source
from descant.errors import SettingError

CONTENTS = bytes(range(256)) * 4096  # 1 MiB: several blocks
MD5 = f"md5:{hashlib.md5(CONTENTS).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves CONTENTS, resumably or not, and can break off; remembers the ranges that it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENTS}
        self.resumes, self.breaks_after, self.asked = True, len(CONTENTS) * 2, list[str | None]()

    def url(self, path: str = "/file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        contents = self.server.files.get(self.path)
        if contents is None:
            return self.send_error(404)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.resumes else 0
        if start >= len(contents):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(contents)}")
            return self.end_headers()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(contents) - start))
        self.end_headers()
        self.wfile.write(contents[start : start + self.server.breaks_after])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_file_is_downloaded_and_progress_is_shown(tmp_path: Path, server: Server) -> None:
    seen = []
    file = fetch_file(Download("f.bin", server.url(), MD5), tmp_path, lambda *said: seen.append(said))
    assert file.read_bytes() == CONTENTS and list(tmp_path.iterdir()) == [file]
    assert seen[0] == ("f.bin", 0, len(CONTENTS)) and seen[-1] == ("f.bin", len(CONTENTS), len(CONTENTS))
    fetch_file(Download("f.bin", server.url(), MD5), tmp_path)
    assert len(server.asked) == 1  # what is there is verified, not downloaded again


def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path, server: Server) -> None:
    download, server.breaks_after = Download("f.bin", server.url(), MD5), 300_000
    with pytest.raises(DataError, match=r"300,000 bytes that came are kept") as caught:
        fetch_file(download, tmp_path)
    assert caught.value.file == tmp_path / "f.bin" and not (tmp_path / "f.bin").exists()
    server.breaks_after = len(CONTENTS)
    assert fetch_file(download, tmp_path).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=300000-"]


def test_a_server_that_cannot_resume_is_asked_for_all(tmp_path: Path, server: Server) -> None:
    (tmp_path / "f.bin.part").write_bytes(CONTENTS[:1000])
    server.resumes = False
    assert fetch_file(Download("f.bin", server.url(), MD5), tmp_path).read_bytes() == CONTENTS


def test_a_whole_part_is_used_and_a_too_long_one_is_not(tmp_path: Path, server: Server) -> None:
    part = tmp_path / "f.bin.part"
    part.write_bytes(CONTENTS)
    assert fetch_file(Download("f.bin", server.url(), MD5), tmp_path).read_bytes() == CONTENTS
    (tmp_path / "f.bin").unlink()
    part.write_bytes(CONTENTS + b"more")
    assert fetch_file(Download("f.bin", server.url(), MD5), tmp_path).read_bytes() == CONTENTS


def test_a_corrupted_download_is_refused_and_not_kept(tmp_path: Path, server: Server) -> None:
    server.files["/file"] = CONTENTS[:-1] + b"\0"
    with pytest.raises(DataError, match="that of the published file") as caught:
        fetch_file(Download("f.bin", server.url(), MD5), tmp_path)
    assert caught.value.file == tmp_path / "f.bin" and list(tmp_path.iterdir()) == []
    assert f"what came from {server.url()} was not kept; fetch it again, or download it" in str(caught.value)
    assert "remove" not in str(caught.value), "there is nothing to remove"


def test_a_file_that_changed_on_disk_is_noticed(tmp_path: Path, server: Server) -> None:
    (tmp_path / "f.bin").write_bytes(CONTENTS[:-1])
    with pytest.raises(DataError, match="remove it and fetch it again"):
        fetch_file(Download("f.bin", server.url(), MD5), tmp_path)
    assert server.asked == []


def test_so_is_one_that_is_known_by_its_contents(tmp_path: Path) -> None:
    (file := tmp_path / "heart-disease" / "processed.cleveland.data").parent.mkdir()
    file.write_text("<html>please log in</html>")
    with pytest.raises(DataError, match="the published file 18,461: remove it and fetch it again"):
        fetch("heart-disease", tmp_path)
    assert file.is_file()


def test_a_full_disk_is_told_as_such_and_what_came_is_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, put = 300_000, files._put

    def little(descriptor: int, raw: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(descriptor, raw[: room - offset], offset)

    monkeypatch.setattr(files, "_put", little)
    said = r"f\.bin\.part' cannot be read or written: the disk is full; make room.*; the 300,000 bytes that came"
    with pytest.raises(DataError, match=said) as caught:
        fetch_file(Download("f.bin", server.url(), MD5), tmp_path)
    assert "network" not in str(caught.value)
    monkeypatch.undo()
    assert fetch_file(Download("f.bin", server.url(), MD5), tmp_path).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=300000-"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/file", "http://no-such-host.invalid/file"])
def test_without_a_network_it_says_which_file_to_put_where(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="download it elsewhere and put it there") as caught:
        fetch_file(Download("f.bin", url, MD5), tmp_path)
    assert url in str(caught.value) and str(tmp_path / "f.bin") in str(caught.value)
    assert "Errno" not in str(caught.value)


def test_a_page_that_is_gone_is_said(tmp_path: Path, server: Server) -> None:
    with pytest.raises(DataError, match="Not Found"):
        fetch_file(Download("f.bin", server.url("/gone"), MD5), tmp_path)


def packed(kind: str, name: str, inside: bytes = b"inside") -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, inside)
    else:
        with tarfile.open(fileobj=stream, mode="w:bz2" if kind.endswith("bz2") else "w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(inside)
            archive.addfile(member, io.BytesIO(inside))
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_are_unpacked_into_the_folder_and_nowhere_else(tmp_path: Path, server: Server, kind: str) -> None:
    server.files["/good"], server.files["/evil"] = packed(kind, "sub/data.bin"), packed(kind, "../../outside.bin")
    fetch_file(Download(f"good.{kind}", server.url("/good"), unpack=True), tmp_path / "a" / "set")
    assert (tmp_path / "a" / "set" / "sub" / "data.bin").read_bytes() == b"inside"
    if kind == "zip":  # zipfile drops what leads outside
        fetch_file(Download(f"evil.{kind}", server.url("/evil"), unpack=True), tmp_path / "b" / "set")
    else:
        with pytest.raises(DataError, match="cannot be unpacked"):
            fetch_file(Download(f"evil.{kind}", server.url("/evil"), unpack=True), tmp_path / "b" / "set")
    assert not (tmp_path / "outside.bin").exists()


def test_an_archive_whose_unpacking_was_interrupted_is_unpacked_again(tmp_path: Path, server: Server) -> None:
    server.files["/good"] = packed("zip", "data.bin")
    (tmp_path / "good.zip.part").write_bytes(server.files["/good"])  # all came, and then the power went
    fetch_file(Download("good.zip", server.url("/good"), unpack=True), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"inside"


def test_an_archive_that_is_none_is_refused_and_not_kept(tmp_path: Path, server: Server) -> None:
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch_file(Download("f.zip", server.url(), unpack=True), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_with_damaged_contents_is_refused_and_not_kept(tmp_path: Path, server: Server) -> None:
    raw = bytearray(packed("zip", "data.bin", bytes(range(256)) * 400))
    raw[30 + len("data.bin")] = 0xFF  # where the compressed bytes begin
    server.files["/damaged"] = bytes(raw)
    with pytest.raises(DataError, match=r"cannot be unpacked .* was not kept"):
        fetch_file(Download("f.zip", server.url("/damaged"), unpack=True), tmp_path)
    assert not list(tmp_path.glob("f.*"))


def test_so_is_one_whose_compressed_bytes_are_no_such(tmp_path: Path, server: Server) -> None:
    raw = bytearray(packed("tar.bz2", "data.bin", Random(0).randbytes(2_000_000)))
    raw[1_500_000] ^= 0xFF  # in the second of its blocks
    server.files["/damaged"] = bytes(raw)
    with pytest.raises(DataError, match=r"cannot be unpacked .* was not kept"):
        fetch_file(Download("f.tar.bz2", server.url("/damaged"), unpack=True), tmp_path)
    assert not list(tmp_path.glob("f.*"))


def test_a_disk_that_is_full_while_it_is_unpacked_is_named(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/archive"] = packed("zip", "data.bin")

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError) as caught:
        fetch_file(Download("f.zip", server.url("/archive"), unpack=True), tmp_path)
    assert files.told(caught.value) == (
        f"'{tmp_path}' cannot be read or written: the disk is full; make room, or choose another place"
    )
    monkeypatch.undo()
    fetch_file(Download("f.zip", server.url("/archive"), unpack=True), tmp_path)  # what came is still there
    assert server.asked == [None, f"bytes={len(server.files['/archive'])}-"]
    assert (tmp_path / "data.bin").read_bytes() == b"inside"


def test_a_data_set_fetches_all_that_it_needs(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mnist", "qmnist-labels"):
        monkeypatch.setitem(SOURCES, name, Source((Download(f"{name}.bin", server.url(), MD5),)))
    found = fetch("mnist-by-writer", tmp_path)
    assert found == [tmp_path / "mnist" / "mnist.bin", tmp_path / "qmnist-labels" / "qmnist-labels.bin"]


def test_what_cannot_be_downloaded_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"LEAF .*celeba.*img_align_celeba"):
        fetch("celeba", tmp_path)
    with pytest.raises(SettingError, match="Did you mean 'mnist'"):
        fetch("mnits", tmp_path)


def test_every_data_set_of_files_has_a_source() -> None:
    made = {
        "synthetic",
        "fedplus-synthetic",
        "digits",
        "folder",
        "mapped",
        "fedplus-regression",
        "point-estimation",
    }
    assert {name for name in DATASETS if name not in made} <= {*SOURCES, *NEEDS}
    for needed in NEEDS.values():
        assert set(needed) <= set(SOURCES)
    for source in SOURCES.values():
        assert bool(source.files) != bool(source.by_hand)
        for download in source.files:
            assert download.url.startswith("http")
            kind, _, digest = (download.checksum or "md5:" + "0" * 32).partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[kind] and int(digest, 16) >= 0


def test_digits_need_no_fetching() -> None:
    with pytest.raises(SettingError, match="digits come along"):
        fetch("digits")
