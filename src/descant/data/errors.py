"""The errors of the data folder: they say whose data is wrong, where it lies and what to do."""

from __future__ import annotations

from pathlib import Path


class DataError(ValueError):
    """Data that cannot be trained on.  `client` and `file` name the culprit where there is one."""

    def __init__(self, problem: str, *, client: str | None = None, file: Path | None = None) -> None:
        self.problem, self.client, self.file = problem, client, file
        culprit = [] if client is None else [f"client {client!r}"]
        if file is not None:
            culprit.append(f"file {file}")
        super().__init__(f"{', '.join(culprit)}: {problem}" if culprit else problem)


class NotFiniteError(DataError):
    """Numbers among the data that are NaN or infinite."""
