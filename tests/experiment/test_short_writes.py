"""The system may write a part of what it was given: rows on disk are whole all the same, or there is an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from descant.state import Leaves

WHO = torch.tensor([0, 1, 2, 7, 9])
ROWS = torch.arange(5 * 300.0).view(5, 300)


@pytest.fixture
def leaves(tmp_path: Path) -> Leaves:
    return Leaves(tmp_path, 10, {"x": ((300,), torch.float32)})


def short(monkeypatch: pytest.MonkeyPatch, most: int, then: Callable[[int], int] | None = None) -> None:
    """Let the system write so many bytes a call; `then` answers from the third call on."""
    whole, calls = os.pwrite, 0

    def write(descriptor: int, raw: memoryview, offset: int) -> int:
        nonlocal calls
        calls += 1
        return then(calls) if then is not None and calls > 2 else whole(descriptor, raw[:most], offset)

    monkeypatch.setattr(os, "pwrite", write)


@pytest.mark.parametrize("most", [1, 7, 1024, 1201])
def test_rows_are_written_whole(leaves: Leaves, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    short(monkeypatch, most)
    leaves.write("x", WHO, ROWS)
    assert leaves["x"][WHO].equal(ROWS) and leaves["x"].count_nonzero() == ROWS.count_nonzero()


def test_a_write_that_gets_no_further_is_an_error_that_names_the_file(
    leaves: Leaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    short(monkeypatch, 100, lambda call: 0)
    with pytest.raises(OSError, match=r"leaf0\.bin") as caught:
        leaves.write("x", WHO, ROWS)
    assert caught.value.filename == str(leaves.folder / "leaf0.bin")


def test_a_full_disk_is_an_error_that_names_the_file(leaves: Leaves, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(call: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    short(monkeypatch, 100, full)
    with pytest.raises(OSError, match=r"No space left on device: .*leaf0\.bin"):
        leaves.write("x", WHO, ROWS)


def test_a_file_that_may_not_grow_is_an_error_without_any_pretence(leaves: Leaves) -> None:
    """The same with the system's own short write, at a limit in the middle of the third row."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * 1200 + 500, before[1]))
    try:
        with pytest.raises(OSError, match=r"leaf0\.bin") as caught:
            leaves.write("x", WHO, ROWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
