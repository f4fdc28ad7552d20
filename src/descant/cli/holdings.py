"""Who holds what, as a table on a terminal."""

from __future__ import annotations

import torch
from rich import box
from rich.markup import escape
from rich.table import Table

from descant.data import FederatedData

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH, _MOST = 24, 40  # of the largest client's bar, and clients that are printed
_NAMES = 60  # characters of class names that are printed in full


def holdings_table(shown: FederatedData, width: int = 140) -> Table:
    """A row a client: how much it holds of each part, and of each label; bars where the width has room for them."""
    sizes = {part: shown.part(part).sizes for part in ("train", "valid", "test")}
    whole = torch.stack(list(sizes.values())).sum(0)  # [N]
    labelled = shown.classes is not None
    counts = shown.counts() if labelled else torch.zeros(len(shown), 1)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)  # [N, classes]
    full = float(shares.max())
    table = Table(title=f"{shown.name}: who holds what", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("client", overflow="fold")  # a name may break, a number may not
    for part in sizes:
        table.add_column(part, justify="right", no_wrap=True, min_width=len(f"{int(sizes[part].max()):,}"))
    bars = width >= 2 * _WIDTH + 30 + counts.shape[1]
    if bars:
        table.add_column("examples", no_wrap=True)
    if labelled:
        table.add_column(f"training labels {_labels(shown)} (highest: {full:.0%})", min_width=counts.shape[1])
    largest = int(whole.max())
    for k in _some(len(shown)):
        row = [escape(shown.clients[k]), *(f"{int(part[k]):,}" for part in sizes.values())]
        if bars:
            row.append("█" * max(1, round(_WIDTH * int(whole[k]) / largest)))
        if labelled:
            row.append(spark(shares[k].tolist(), full))
        table.add_row(*row)
    table.caption, table.caption_justify = _caption(shown), "left"
    return table


def _labels(shown: FederatedData) -> str:
    """What the bars stand for, one after the other."""
    names = [escape(name) for name in shown.class_names]
    if names and len(", ".join(names)) <= _NAMES:
        return ", ".join(names)
    first, last = (names[0], names[-1]) if names else ("0", str((shown.classes or 1) - 1))
    return f"{first} to {last}"


def spark(shares: list[float], full: float) -> str:
    """Shares as bars, one character each, the highest where a share is `full`; what is there at all is seen."""
    return "".join(
        _BARS[0] if not share else _BARS[max(1, round(share / full * (len(_BARS) - 1)))] for share in shares
    )


def _some(clients: int) -> list[int]:
    if clients <= _MOST:
        return list(range(clients))
    return [k * (clients - 1) // (_MOST - 1) for k in range(_MOST)]


def holdings_said(shown: FederatedData) -> str:
    """How many clients hold how much, in a line."""
    whole = torch.stack([shown.part(part).sizes for part in ("train", "valid", "test")]).sum(0)  # [N]
    low, high = int(whole.min()), int(whole.max())
    said = f"{len(shown)} clients, {int(whole.sum()):,} examples, {low:,} to {high:,} a client"
    if shown.classes is not None:
        held = (shown.counts() > 0).sum(1).float()
        said += f", {float(held.mean()):.1f} of {shown.classes} labels a client on average"
    return said


def _caption(shown: FederatedData) -> str:
    said = holdings_said(shown)
    said += f"; {_MOST} clients are shown" if len(shown) > _MOST else ""
    return "\n".join([said, *(f"Note: {escape(note)}" for note in shown.notes)])
