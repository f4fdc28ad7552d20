"""TensorFlow Federated's Shakespeare: an h5 file with the lines of every speaking role."""

from __future__ import annotations

from pathlib import Path

import torch

from descant.data.errors import DataError
from descant.data.examples import Examples, joined
from descant.data.extra import need
from descant.datasets.known import check_known
from descant.datasets.readers.text import LETTERS, letters
from descant.datasets.sources import find


def read_shakespeare(folder: Path, length: int) -> Examples:
    """Pieces of `length` letters, and for each letter the next one as its target; a role a client.

    A role's lines are joined by line ends and cut into pieces of length + 1; what is left over at the end is not
    used, and neither is a role without one whole training piece.
    """
    train, test = (
        read_lines(find(folder, f"shakespeare_{part}.h5", f"datasets/shakespeare_{part}.h5"), length)
        for part in ("train", "test")
    )
    return joined(train, test)


def read_lines(file: Path, length: int) -> Examples:
    """The pieces of one file."""
    h5py = need("h5py", "h5py")
    check_known(file, file.read_bytes())
    pieces, names, counts = [], [], []
    try:
        with h5py.File(file) as opened:
            for role, held in opened["examples"].items():
                text = b"\n".join(held["snippets"][()].tolist()).decode("utf-8", "replace")
                whole = letters(text)
                count = len(whole) // (length + 1)
                pieces.append(whole[: count * (length + 1)].view(count, length + 1))
                names.append(role)
                counts.append(count)
    except (OSError, KeyError, AttributeError, TypeError, RuntimeError) as error:
        problem = f"it is not an h5 file with examples/ROLE/snippets, or it is damaged ({error})"
        raise DataError(problem, file=file) from error
    if not sum(counts):
        raise DataError(f"no role has {length + 1} letters", file=file)
    rows = torch.cat(pieces)
    owners = torch.arange(len(names)).repeat_interleave(torch.tensor(counts))
    return Examples("shakespeare-tff", rows[:, :-1], rows[:, 1:], len(LETTERS), owners, tuple(names))
