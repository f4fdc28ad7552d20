"""A finished run that keeps models, made once for all who read it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import descant as dc
from tests.experiment.kept import SOME
from tests.experiment.small import begin, copied


class Finished(NamedTuple):
    """A run in memory, and its folder."""

    run: dc.Run
    folder: Path

    def copied(self, to: Path) -> Path:
        """A folder of one's own, to be harmed."""
        return copied(self.folder, to)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("done") / "run"
    run = begin(folder, store="memory", **SOME)
    assert run is not None
    return Finished(run, folder)
