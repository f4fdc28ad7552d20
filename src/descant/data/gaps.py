"""Classes that nobody has an example of: where their number was inferred, a sign of a label that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from descant.data.checks import refuse
from descant.data.part import Part

_NAMED = 3  # runs of missing classes that are named


def note_of_gaps(parts: Mapping[str, Part], clients: Sequence[str], classes: int) -> str:
    """The classes below the highest label without an example in any client, in words; "" where there is none.

    Where more are missing than are there, the labels are refused. Text is left alone (targets that are sequences,
    and those of tokens): of a vocabulary many words occur nowhere.
    """
    if any(rows.targets.ndim != 1 or not rows.inputs.is_floating_point() for rows in parts.values()):
        return ""
    labels = {name: rows.targets for name, rows in parts.items()}
    counts = torch.stack([own.bincount(minlength=classes) for own in labels.values()]).sum(0)  # [classes]
    gaps = _runs((counts == 0).nonzero()[:, 0].tolist())
    missing = sum(last - first + 1 for first, last in gaps)
    if not missing:
        return ""
    highest, said = classes - 1, _said(gaps)
    part = next(name for name, own in labels.items() if bool((own == highest).any()))
    if missing > classes - missing:
        problem = (
            f"label {highest}, and {said}: number the classes from 0 without gaps, or set classes={classes} if it "
            "is meant so"
        )
        refuse(part, "targets", labels[part] == highest, parts[part], clients, problem)
    if gaps[-1][1] == highest - 1:  # it stands alone: what is more likely wrong than what is below it
        times = "once" if int(counts[highest]) == 1 else f"{int(counts[highest])} times"
        said += f"; label {highest} occurs {times} ({_holders(parts, clients, highest)})"
    return said[0].upper() + said[1:]


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as runs of consecutive ones: the first and the last of each."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _said(gaps: Sequence[tuple[int, int]]) -> str:
    named = [str(first) if first == last else f"{first} to {last}" for first, last in gaps[:_NAMED]]
    others = sum(last - first + 1 for first, last in gaps[_NAMED:])
    listed = ", ".join(named) + (f" and {others} more" if others else "")
    return (
        f"class {listed} has no example"
        if len(gaps) == 1 and named[0].isdigit()
        else f"classes {listed} have no example"
    )


def _holders(parts: Mapping[str, Part], clients: Sequence[str], label: int) -> str:
    """The first client with an example of a label, and how many others have one."""
    owners = sorted({k for rows in parts.values() for k in rows.owners[rows.targets == label].tolist()})
    others = len(owners) - 1
    also = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    return f"client {clients[owners[0]]!r}{also}"
