"""A run's history as tables (polars), and back."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl

from descant.engine import RoundRecord
from descant.experiment.history import AT_EVALUATION, SPENT, Federation, History, at_point
from descant.files import write_bytes
from descant.sealed import damaged, read_entry

_ROUND = {name: pl.Int64 if kind is int else pl.Float64 for name, kind in get_type_hints(RoundRecord).items()}
del _ROUND["figures"]  # columns of their own, where the method reports any
_CLIENT = {"round": pl.Int32, "client": pl.Int64}  # what polars takes a number for, and an array
_ROWS, _ROWS_A_BYTE = 10**7, 100  # a table of equal numbers is small, but not without end


def rounds_frame(history: History) -> pl.DataFrame:
    """One row a round: cohort, messages, bytes, gradients, seconds, and what the method reported."""
    return pl.DataFrame(history.rounds, infer_schema_length=None) if history.rounds else _no_rows(_ROUND)


def clients_frame(history: History, parts: Iterable[str] = ()) -> pl.DataFrame:
    """One row a client, model and evaluated round: losses and metrics by part, and what the client has spent.

    `parts` are those that were to be evaluated, for the columns of a table without rows.
    """
    clients = np.arange(len(history.federation.names))
    frames = [
        pl.DataFrame({"round": round, "client": clients, "model": model} | columns | history.spent[round])
        for model, rounds in history.evaluated.items()
        for round, columns in rounds.items()
    ]
    if frames:
        return pl.concat(frames, how="diagonal")
    measured = [f"{part}_{measure}" for measure in ("loss", history.metric) for part in parts]
    spent = dict.fromkeys((*SPENT, *AT_EVALUATION), pl.Int64)
    return _no_rows(_CLIENT | {"model": pl.String} | dict.fromkeys(measured, pl.Float64) | spent)


def health_frame(history: History, points: Iterable[float] = ()) -> pl.DataFrame:
    """One row a client and round that was looked at: its jump, its distance, its losses on the way.

    `points` are those of the way that were to be looked at, for the columns of a table without rows.
    """
    frames = [pl.DataFrame({"round": round} | columns) for round, columns in history.health.items()]
    if frames:
        return pl.concat(frames)
    measured = ("jump", "distance", "loss_began", *map(at_point, points))
    return _no_rows(_CLIENT | dict.fromkeys(measured, pl.Float64))


def _no_rows(columns: dict[str, Any]) -> pl.DataFrame:
    """A table with its columns where a run has no row for it: it collapsed before, or looked at nothing."""
    return pl.DataFrame(schema=columns)


def federation_frame(federation: Federation) -> pl.DataFrame:
    """One row a client: its name, its number of examples in each part, its training labels by class."""
    columns: dict[str, Any] = {"client": np.arange(len(federation.names)), "name": federation.names}
    frame = pl.DataFrame(columns | federation.sizes)
    if federation.labels is not None:
        frame = frame.with_columns(pl.Series("labels", federation.labels).cast(pl.List(pl.Int64)))
    if federation.malicious is not None:
        frame = frame.with_columns(pl.Series("malicious", federation.malicious))
    if federation.newcomers is not None:
        frame = frame.with_columns(pl.Series("newcomer", federation.newcomers))
    return frame


def federation_of(frame: pl.DataFrame) -> Federation:
    sizes = {part: frame[part].to_numpy() for part in ("train", "valid", "test")}
    labels = np.array(frame["labels"].to_list()) if "labels" in frame.columns else None
    malicious = frame["malicious"].to_numpy() if "malicious" in frame.columns else None
    late = frame["newcomer"].to_numpy() if "newcomer" in frame.columns else None
    return Federation(frame["name"].to_list(), sizes, labels, malicious, late)


def fill(history: History, rounds: pl.DataFrame, clients: pl.DataFrame) -> None:
    """Put back into an empty history what the two tables hold."""
    history.rounds = rounds.to_dicts()
    if clients.is_empty():
        return
    counts = [name for name in (*SPENT, *AT_EVALUATION) if name in clients.columns]
    for (model, round), rows in clients.group_by("model", "round", maintain_order=True):
        columns = {c: rows[c].to_numpy() for c in rows.columns if c not in ("round", "client", "model", *counts)}
        history.evaluated.setdefault(str(model), {})[int(str(round))] = columns
        history.spent[int(str(round))] = {name: rows[name].to_numpy() for name in counts}


def fill_health(history: History, health: pl.DataFrame) -> None:
    """Put back into a history what the table of its health holds."""
    for (round,), rows in health.group_by("round", maintain_order=True) if not health.is_empty() else ():
        columns = {name: rows[name].to_numpy() for name in rows.columns if name != "round"}
        history.health[int(str(round))] = columns


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all."""
    write_bytes(path, [as_parquet(table)])


def as_parquet(table: pl.DataFrame) -> bytes:
    raw = BytesIO()
    table.write_parquet(raw)
    return raw.getvalue()


def read_table(path: Path, entry: Any, *, sealed: bool) -> pl.DataFrame:
    """Read a table that is the one in the list; of a run without checksums (not `sealed`) as far as can be told."""
    raw = read_entry(path, entry if sealed else None, sealed=sealed)
    try:
        rows = pl.scan_parquet(BytesIO(raw)).select(pl.len()).collect().item()
        if rows > _ROWS + _ROWS_A_BYTE * len(raw):
            raise damaged(path, f"claims to hold {rows} rows in {len(raw)} bytes")
        return pl.read_parquet(BytesIO(raw))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise damaged(path, "is damaged (it is no table)") from None
