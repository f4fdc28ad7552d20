"""Federated data in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from descant.data.federated import FederatedData


def data_text(data: FederatedData) -> str:
    """Who holds how much, in two lines: clients, classes, what an example is, and the sizes of the parts."""
    kinds = "regression" if data.classes is None else f"{data.classes} classes"
    dtype = str(data.train.inputs.dtype).removeprefix("torch.")
    parts = ", ".join(f"{len(data.part(name).inputs):,} {name}" for name in ("train", "valid", "test"))
    sizes = data.train.sizes
    least, most = int(sizes.min()), int(sizes.max())
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    clients = "1 client" if len(data) == 1 else f"{len(data):,} clients"
    return (
        f"FederatedData({data.name}: {clients}, {kinds}, inputs {list(data.input_shape)} {dtype}\n"
        f"    {parts} examples; a client trains on {each})"
    )
