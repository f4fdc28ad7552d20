"""Runs on a GPU, where there is one: draws and figures as on the processor, and the same bits when resumed."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.execution import ongpu, tuning
from descant.execution.device import free_memory
from descant.execution.memory import Choice
from descant.methods import METHODS
from tests import held
from tests.interrupted import assert_same, interrupt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]
ROUNDS = 4


def federation() -> dc.FederatedData:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(n, 12, generator=generator, dtype=torch.float64) for n in (9, 30, 14, 25, 40, 11, 33)]
    return dc.FederatedData.from_arrays([(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()) for x in inputs])


def run(method: Any, device: str, *, mode: str = "compile", model: nn.Module | None = None, **more: Any) -> dc.Run:
    torch.manual_seed(0)
    task = dc.Task(model or nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    return dc.simulate(task, federation(), method, mode=mode, device=device, **{"rounds": ROUNDS, **more})


def images() -> dc.FederatedData:
    generator = torch.Generator().manual_seed(5)
    pairs = [torch.randn(n, 1, 8, 8, generator=generator) for n in (20, 30, 25, 18)]
    return dc.FederatedData.from_arrays([(x, (x.mean((1, 2, 3)) > 0).long()) for x in pairs])


@pytest.mark.parametrize("mode", ["vmap", "compile"])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "mocha"])  # which trains linear models
def test_every_method_does_the_same_on_both(name: str, mode: str) -> None:
    method = METHODS[name](lr=0.05, steps=5, batch=8)
    ours, theirs = run(method, "cuda", mode=mode, cohort=5), run(method, "cpu", mode="vmap", cohort=5)
    assert not [note for note in ours.config["execution"]["fallbacks"] if "lasting identity" not in note]
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-7, atol=1e-9)
    same = ("gradients", "examples", "bytes_up", "bytes_down", "cohort", "received", "refused")
    for mine, its in zip(ours.history.rounds, theirs.history.rounds, strict=True):
        assert [mine[column] for column in same] == [its[column] for column in same]


@pytest.mark.parametrize(
    "more",
    [
        {"stragglers": 0.5, "chunk": 3},
        {"aggregator": "geometric-median", "attacks": "sign-flip", "malicious": 0.3},
        {"codec": {"name": "top-k", "share": 0.2}},
        {"own_start": True, "trainers": "everyone", "cohort": 0.5},
        {"store": "disk"},
    ],
    ids=str,
)
def test_so_do_the_parts_of_a_run(more: dict[str, Any], tmp_path: Path) -> None:
    method = dc.methods.Ditto(steps=5, batch=8)
    folders = {"out": tmp_path / "a"} if "store" in more else {}
    others = {"out": tmp_path / "b"} if "store" in more else {}
    ours, theirs = run(method, "cuda", **more, **folders), run(method, "cpu", mode="vmap", **more, **others)
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-7, atol=1e-9)


def test_runs_that_are_kept_or_forgotten_hold_little_of_the_gpu() -> None:
    """Graphs above all: none of a run that has ended stays, whether the run is kept or garbage."""
    method, kept, taken = dc.methods.Ditto(steps=5, batch=8), [], []
    wide = nn.Sequential(nn.Linear(12, 4000), nn.Tanh(), nn.Linear(4000, 3)).double()
    for turn in range(12):
        done = run(method, "cuda", mode="vmap", model=wide, rounds=2)
        kept += [done] if turn % 2 else []
        del done
        gc.collect()
        taken.append(torch.cuda.memory_reserved())
    state = 7 * 2 * 64_003 * 8  # of the clients of a run, twice over
    assert taken[-1] - taken[3] <= 8 * state


@pytest.mark.parametrize("way", ["grouped", "unfolded", "direct"])
def test_convolutions_too(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.Flatten()]
    task = dc.Task(nn.Sequential(*convolutions, nn.Linear(24, 2)).double())
    name = {"grouped": "compile", "unfolded": ongpu.UNFOLDED, "direct": ongpu.DIRECT}[way]
    monkeypatch.setattr(tuning, "recall", lambda key: Choice(name, "chosen here", []) if key else None)
    found = []
    for device, mode in (("cuda", "auto"), ("cpu", "vmap")):
        method = dc.methods.FedAvg(steps=5, batch=8)
        found.append(dc.simulate(task, images(), method, rounds=ROUNDS, device=device, mode=mode))  # type: ignore[arg-type]
    assert found[0].config["execution"]["convolutions"] == way
    torch.testing.assert_close(held.shared(found[0]), held.shared(found[1]), rtol=1e-7, atol=1e-9)


def normalized(device: str, mode: str, **more: Any) -> dc.Run:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    ).double()
    method = dc.methods.FedAvg(epochs=2, batch=4)
    return dc.simulate(dc.Task(model), images(), method, rounds=ROUNDS, device=device, mode=mode, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["vmap", "compile", "auto"])
@pytest.mark.parametrize("drop_last", [True, False])  # if minibatches are all of one length, they are captured
def test_batchnorm_too(mode: str, drop_last: bool) -> None:
    ours = normalized("cuda", mode, drop_last=drop_last)
    assert not ours.config["execution"]["fallbacks"]
    theirs = normalized("cpu", "vmap", drop_last=drop_last)
    torch.testing.assert_close(held.shared(ours), held.shared(theirs), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("mode", ["vmap", "compile"])
def test_steps_are_captured(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from descant.execution import captured

    made: list[Any] = []
    plain = captured._Graph.__init__
    monkeypatch.setattr(
        captured._Graph, "__init__", lambda self, *args, **more: (made.append(self), plain(self, *args, **more))[1]
    )
    run(dc.methods.Ditto(steps=5, batch=8), "cuda", mode=mode)
    assert len(made) == 2  # the shared model's and the personal models'


@pytest.mark.parametrize("method", ["fedavg", "ditto", "lp-proj", "flame", "scaffold", "l2sgd", "hush"])
@pytest.mark.parametrize("mode", ["compile", "vmap"])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(method: str, mode: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 8, "commit": 3, "cohort": 4, "mode": mode}
    unbroken = run(METHODS[method](steps=5, batch=8), "cuda", out=tmp_path / "unbroken", **settings)
    with pytest.raises(KeyboardInterrupt):
        run(METHODS[method](steps=5, batch=8), "cuda", out=tmp_path / "run", progress=interrupt(5), **settings)
    torch.manual_seed(0)
    task = dc.Task(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    assert_same(dc.resume(tmp_path / "run", task, federation()), unbroken)


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
import descant as dc
from tests.gpu.test_gpu import run
from descant.engine import RoundRecord
def progress(record):
    if isinstance(record, RoundRecord) and record.round == {stop}:
        os.kill(os.getpid(), 9)
run(dc.methods.Ditto(steps=5, batch=8), "cuda", rounds=9, commit=2, out={out!r}, progress=progress)
"""


def test_a_killed_process_too(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    for out, stop in (("run", 5), ("unbroken", 99)):
        code = KILLED.format(root=root, stop=stop, out=str(tmp_path / out))
        assert (subprocess.run([sys.executable, "-c", code], check=False).returncode == 0) == (stop == 99)
    torch.manual_seed(0)
    task = dc.Task(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double())
    resumed = dc.resume(tmp_path / "run", task, federation())
    assert resumed.clients.equals(dc.load(tmp_path / "unbroken").clients)


def test_too_many_clients_for_the_memory_are_halved_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    method = dc.methods.Ditto(steps=5, batch=8)
    from descant.engine.clients import Clients

    plain, most = Clients.work, 3

    def work(self: Clients, ctx: Any, who: torch.Tensor, *others: Any) -> Any:
        found = plain(self, ctx, who, *others) if len(who) <= most else None
        if found is None:
            torch.empty(2**46, device="cuda")
        return found

    monkeypatch.setattr(Clients, "work", work)
    ours, theirs = run(method, "cuda"), run(method, "cpu", mode="vmap", chunk=2)
    notes = ours.config["execution"]["fallbacks"]
    assert [note for note in notes if "did not hold 7 clients" in note]
    assert [note for note in notes if "2 are trained at once" in note]
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-7, atol=1e-9)


def test_less_exact_products_are_near() -> None:
    method = dc.methods.FedAvg(steps=5, batch=8)
    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 3))
    rough, full = (run(method, "cuda", model=model, precision=p) for p in ("bf16", "full"))
    assert not held.shared(rough).equal(held.shared(full))
    torch.testing.assert_close(held.shared(rough), held.shared(full), rtol=0, atol=0.05)


@pytest.mark.parametrize("precision", ["full", "tf32"])
def test_a_run_says_how_exact_products_are_and_leaves_it_as_it_was(precision: str) -> None:
    def allowed() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before, during = allowed(), set[tuple[bool, bool]]()
    run(dc.methods.FedAvg(steps=2, batch=8), "cuda", precision=precision, progress=lambda _: during.add(allowed()))
    assert during == {(precision == "tf32",) * 2}
    assert allowed() == before


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_says_whether_sums_have_an_order_and_leaves_it_as_it_was(deterministic: bool) -> None:
    def ordered() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic

    before, during, method = ordered(), set[tuple[bool, bool]](), dc.methods.FedAvg(steps=2, batch=8)
    run(method, "cuda", deterministic=deterministic, progress=lambda _: during.add(ordered()))
    assert during == {(deterministic, deterministic)}
    assert ordered() == before


def test_auto_takes_the_gpu() -> None:
    done = run(dc.methods.FedAvg(steps=2, batch=8), "auto", mode="auto")
    assert done.config["execution"]["device"] == "cuda"
    assert free_memory(torch.device("cuda")) > 0
