"""What an optional package is needed for says how to install it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from descant.datasets import DATASETS


@pytest.mark.parametrize(
    ("name", "module", "file"),
    [("shakespeare-tff", "h5py", "shakespeare_train.h5"), ("medical-mnist", "PIL", "AbdomenCT/0.jpeg")],
)
def test_without_the_extra_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, file: str
) -> None:
    (tmp_path / name / file).parent.mkdir(parents=True)
    (tmp_path / name / file).write_bytes(b"")
    for loaded in [m for m in sys.modules if m.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'descant\[data\]'"):
        DATASETS[name](root=tmp_path)
