"""Clients' rows that lie in the processor's memory, beside a GPU: the same bits as on it, however they travel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
import descant.state
from descant.errors import SlowWarning
from descant.mirrors import sent
from descant.state import store, travel
from descant.state.store import ClientStore
from descant.state.streams import Streams
from descant.trees import Tree
from tests import held
from tests.gpu.test_gpu import federation, run
from tests.interrupted import assert_same, interrupt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"chunk": 3},
        {"cohort": 4},
        {"cohort": 4, "chunk": 2},
        {"cohort": 5, "codec": {"name": "top-k", "share": 0.2}},
        {"trainers": "everyone", "cohort": 3, "chunk": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("room", ["room", "none"])
def test_a_run_is_the_same_to_the_bit(settings: dict[str, Any], room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = dc.methods.Ditto(steps=5, batch=8)
    theirs = held.everything(run(method, "cuda", rounds=8, **settings))
    monkeypatch.setattr(store, "_SHARE", 0.0)
    if room == "none":  # for copies on the GPU
        monkeypatch.setattr(travel, "_SHARE", 0.0)
    ours = held.everything(run(method, "cuda", rounds=8, **settings))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].cpu().equal(theirs[name].cpu()) for name in ours)


@pytest.mark.parametrize("settings", [{"cohort": 4}, {"chunk": 3}], ids=str)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_SHARE", 0.0)
    method, settings = dc.methods.Ditto(steps=5, batch=8), {"rounds": 8, "commit": 3, **settings}
    unbroken = run(method, "cuda", out=tmp_path / "unbroken", **settings)
    with pytest.raises(KeyboardInterrupt):
        run(method, "cuda", out=tmp_path / "run", progress=interrupt(5), **settings)
    torch.manual_seed(0)
    task = dc.Task(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    assert_same(dc.resume(tmp_path / "run", task, federation()), unbroken)


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
import descant as dc
from descant.state import store
from tests.gpu.test_gpu import run
from descant.engine import RoundRecord
store._SHARE = {share}
def progress(record):
    if isinstance(record, RoundRecord) and record.round == {stop}:
        os.kill(os.getpid(), 9)
run(dc.methods.Ditto(steps=5, batch=8), "cuda", rounds=9, cohort=4, commit=2, out={out!r}, progress=progress)
"""


def test_a_killed_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    for out, stop, share in (("run", 5, 0.0), ("unbroken", 99, 0.2)):
        code = KILLED.format(root=root, stop=stop, share=share, out=str(tmp_path / out))
        assert (subprocess.run([sys.executable, "-c", code], check=False).returncode == 0) == (stop == 99)
    monkeypatch.setattr(store, "_SHARE", 0.0)
    torch.manual_seed(0)
    task = dc.Task(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    resumed = dc.resume(tmp_path / "run", task, federation())
    assert resumed.clients.equals(dc.load(tmp_path / "unbroken").clients)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_read_and_written_is_as_on_the_gpu(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of some megabytes, so that copies take their time, with a GPU that is kept busy between."""
    clients, width, chance, device = 40, 50_000, Random(seed), torch.device("cuda")

    def first(who: torch.Tensor) -> Tree:
        return {"v": who[:, None].expand(-1, width).float(), "n": who.clone()}

    there = ClientStore(clients, first, device)
    monkeypatch.setattr(store, "_SHARE", 0.0)
    if seed % 3 == 2:
        monkeypatch.setattr(travel, "_SHARE", 0.0)
    beside = ClientStore(clients, first, device)
    assert there._travel is None and beside._travel is not None
    busy = torch.randn(2000, 2000, device=device)

    def some() -> torch.Tensor:
        if chance.random() < 0.3:
            begin = chance.randrange(clients)
            return torch.arange(begin, min(clients, begin + chance.randint(1, 20)))
        return torch.tensor(sorted(chance.sample(range(clients), chance.randint(1, 20))))

    for step in range(60):
        who, then = sent(some(), device), sent(some(), device)
        mine, theirs = beside.gather(who), there.gather(who)
        for _ in range(chance.randint(0, 5)):
            busy = (busy @ busy).tanh()
        new = {name: leaf * 3 + step for name, leaf in mine.items()}
        beside.ahead(then, who)
        beside.scatter(who, new)
        for leaf in new.values():
            leaf.zero_()  # what was kept is a copy
        there.scatter(who, {name: leaf * 3 + step for name, leaf in theirs.items()})
        same = [mine[name].equal(theirs[name]) for name in mine] if chance.random() < 0.3 else [True]
        assert all(same)
        if chance.random() < 0.15:
            (ids, rows), (others, expected) = beside.changed(), there.changed()
            assert ids.equal(others.cpu()) and all(rows[name].equal(expected[name].cpu()) for name in rows)
    assert isinstance(beside._travel.ways, Streams) and beside._travel.ways._kernels is not None
    assert all(beside.leaves[name].equal(leaf.cpu()) for name, leaf in there.leaves.items())


def test_memory_that_cannot_be_pinned_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, method = torch.empty, dc.methods.Ditto(steps=5, batch=8)

    def refused(*shape: int, **more: Any) -> torch.Tensor:
        if more.get("pin_memory"):
            raise RuntimeError("CUDA error: out of memory")
        return plain(*shape, **more)

    theirs = run(method, "cuda", mode="vmap", cohort=4)
    monkeypatch.setattr(store, "_SHARE", 0.0)
    monkeypatch.setattr(torch, "empty", refused)
    assert held.personal(run(method, "cuda", mode="vmap", cohort=4)).equal(held.personal(theirs))


def test_without_triton_the_processor_serves_as_well_and_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    method = dc.methods.Ditto(steps=5, batch=8)
    theirs = run(method, "cuda", mode="vmap", cohort=4)
    monkeypatch.setattr(store, "_SHARE", 0.0)
    monkeypatch.setitem(sys.modules, "descant.state.rows", None)
    monkeypatch.delattr(descant.state, "rows", raising=False)
    with pytest.warns(SlowWarning, match=r"since no kernel can move them \(ModuleNotFoundError: ") as said:
        ours = run(method, "cuda", mode="vmap", cohort=4)
    assert held.personal(ours).equal(held.personal(theirs)) and len(said) == 1
