"""A table has its columns also where a run has no row for it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import descant as dc

TABLES = ("rounds", "clients", "health")


def regression(lr: float, out: Path, **settings: object) -> dc.Run:
    """FedAvg on a squared error, which diverges at a huge rate."""
    data = dc.datasets.synthetic(clients=4, samples=20)
    parts = [data.train.client(k) for k in range(4)]
    data = dc.FederatedData.from_arrays([(X, X.sum(1, keepdim=True)) for X, _ in parts], test=0.2, valid=0.2)
    task = dc.Task(dc.models.linear(data), loss="squared_error")
    method = dc.methods.FedAvg(lr=lr, steps=3)
    return dc.simulate(task, data, method, rounds=2, mode="vmap", out=out, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("health", [None, {"rounds": 1, "points": [0.0, 0.5]}])
def test_a_collapse_in_round_1_leaves_tables_with_the_columns_of_any_run(tmp_path: Path, health: object) -> None:
    calm = regression(1e-4, tmp_path / "calm", health=health)
    wild = regression(1e30, tmp_path / "wild", health=health)
    assert calm.collapse is None and wild.collapse is not None and wild.collapse.round == 1
    for run in (wild, dc.load(tmp_path / "wild")):
        assert run.rounds.schema == calm.rounds.schema and run.rounds.height == 0
        assert run.clients.schema == calm.clients.schema
        assert run.health.schema == calm.health.schema and run.health.height == 0
        assert run.rounds["bytes_up"].sum() == 0, "what is computed of a column has a value"
    saved = pl.read_parquet(tmp_path / "wild" / "rounds.parquet")
    assert saved.schema == calm.rounds.schema


def test_a_run_that_evaluates_nothing_says_what_it_would_have(tmp_path: Path) -> None:
    told = {"parts": ("test",), "models": ("personal",)}
    some = regression(1e-4, tmp_path / "some", evaluate=told)
    data = dc.datasets.synthetic(clients=3, samples=12)
    none = dc.simulate(
        dc.Task(dc.models.linear(data)), data, "local", rounds=1, evaluate=told | {"models": ("shared",)}
    )
    assert none.clients.height == 0 and some.clients.height > 0
    assert none.clients.columns == [c.replace("squared_error", "accuracy") for c in some.clients.columns]
    assert none.clients.dtypes == some.clients.dtypes
