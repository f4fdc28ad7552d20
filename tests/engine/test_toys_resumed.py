"""All that remembers, interrupted and resumed: to the bit what the unbroken run is, in memory and on disk."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toys.attacks import Grudge, Opposite, Veiled
from toys.codecs import Spoiled, Unable
from toys.noise import NoisyFedAvg, PrivateFedAvg
from toys.subspace import Subspace

import descant as dc
from descant.aggregators import CenteredClipping, KLoss
from descant.attacks import ALIE, Backdoor, Mimic, OptimizedBackdoor, RandomLabels, SignFlip
from descant.codecs import DGC, LBGM, QSGD, BFloat16, CountSketch, Float16, RandomK, Sign, SparseTernary, TopK
from descant.engine import Record, RoundRecord
from descant.methods import AFL, FLAME, L2SGD, MOCHA, Ditto, FedADMM, FedAvg, FedPlus, LpProj, Method, Scaffold
from tests import held
from tests.interrupted import assert_same

LOCAL: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
AVG = FedAvg(**LOCAL)
FLIP = [SignFlip(tau=1.0)]
CASES: dict[str, tuple[Method, dict[str, Any]]] = {
    "scaffold": (Scaffold(**LOCAL), {"stragglers": 0.5}),
    "scaffold top-k": (Scaffold(**LOCAL), {"codec": TopK(share=0.2)}),
    "afl": (AFL(**LOCAL, gamma=0.2, draw="mixture"), {}),
    "l2sgd": (L2SGD(batch=3), {"cohort": None}),
    "l2sgd top-k": (L2SGD(batch=3), {"codec": TopK(share=0.4), "lost": 0.2}),
    "mocha": (MOCHA(lam=3.0, loss="squared", every=3), {"stragglers": 0.5}),
    "mocha top-k": (MOCHA(lam=3.0, loss="squared", every=3), {"codec": TopK(share=0.4), "lost": 0.2}),
    "dgc": (AVG, {"codec": DGC(share=0.1, warmup=6, clip=0.5), "lost": 0.2}),
    "qsgd": (AVG, {"codec": QSGD(bucket=9)}),
    "qsgd of positions": (FLAME(**LOCAL), {"codec": QSGD(bucket=9), "lost": 0.2}),
    "sketch": (AVG, {"codec": CountSketch(share=0.1, columns=0.2), "lost": 0.2}),
    "sketch of positions": (FLAME(**LOCAL), {"codec": CountSketch(share=0.1, columns=0.2)}),
    "sign": (AVG, {"codec": Sign(), "lost": 0.2}),
    "random-k": (Scaffold(**LOCAL), {"codec": RandomK(share=0.2), "lost": 0.2}),
    "bfloat16": (AVG, {"codec": BFloat16(), "downlink": BFloat16()}),
    "lbgm": (AVG, {"codec": LBGM(delta=0.5), "lost": 0.2}),
    "lbgm of positions": (FLAME(**LOCAL), {"codec": LBGM(delta=0.5), "lost": 0.2}),
    "clipping": (AVG, {"aggregator": CenteredClipping(tau=0.05)}),
    "k-loss, ditto": (Ditto(solver=AVG, **LOCAL), {"aggregator": KLoss(), "attacks": FLIP, "malicious": 2}),
    "k-loss, lp-proj": (LpProj(**LOCAL, dim=5), {"aggregator": KLoss()}),
    "opposite": (AVG, {"attacks": [Opposite()], "malicious": [0, 3]}),
    "grudge": (FedPlus(**LOCAL), {"attacks": [*FLIP, Grudge()], "malicious": 0.4}),
    "random labels": (AVG, {"attacks": [RandomLabels()], "malicious": [1, 4]}),
    "mimic": (AVG, {"attacks": [Mimic(warmup=3)], "malicious": [1, 4]}),
    "mimic of positions": (FLAME(**LOCAL), {"attacks": [Mimic(warmup=6)], "malicious": [1, 4]}),
    "searched": (AVG, {"attacks": [ALIE(z="search")], "malicious": 2, "aggregator": CenteredClipping(tau=0.05)}),
    "positions": (Scaffold(**LOCAL), {"attacks": "lp-proj/poison", "malicious": 2}),
    "backdoor": (Ditto(solver=AVG, **LOCAL), {"attacks": [Backdoor(size=1), "replacement"], "malicious": [1, 4]}),
    "a trigger that is looked for": (AVG, {"attacks": OptimizedBackdoor(size=1, every=3), "malicious": [1, 4]}),
    "and on personal models": (LpProj(**LOCAL, dim=5), {"attacks": OptimizedBackdoor(size=1), "malicious": [1, 4]}),
    "private poison": (AVG, {"attacks": [Veiled()], "malicious": [1, 4]}),
    "noise": (NoisyFedAvg(**LOCAL), {}),
    "private noise": (PrivateFedAvg(**LOCAL), {"secret": 11}),
    "a secret of the system's": (PrivateFedAvg(**LOCAL), {}),
    "subspace": (Subspace(**LOCAL, dim=4), {"lost": 0.4}),
    "ditto in a subspace": (Ditto(solver=Subspace(**LOCAL, dim=4), **LOCAL), {}),
    "sparse flame": (FLAME(**LOCAL), {"codec": TopK(share=0.1), "lost": 0.3}),
    "sparse fedadmm": (FedADMM(**LOCAL), {"codec": TopK(share=0.1), "lost": 0.3}),
    "both ways": (AVG, {"codec": SparseTernary(share=0.2), "downlink": SparseTernary(share=0.2), "lost": 0.2}),
    "dgc down": (Scaffold(**LOCAL), {"downlink": DGC(share=0.1, warmup=6)}),
    "float16": (AVG, {"codec": Float16(), "downlink": Float16()}),
    "refused": (AVG, {"codec": Spoiled(share=0.2, bad=(1, 5))}),
    "not encoded": (FedAvg(**LOCAL, weighted=False), {"codec": Unable(bad=(2,)), "secret": 4}),
}


@pytest.fixture(scope="module")
def regression() -> tuple[dc.Task, dc.FederatedData]:
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (6, 1, 9, 4, 13, 2, 7)]
    data = dc.FederatedData.from_arrays([{"train": (x, x.sum(1, keepdim=True))} for x in rows])
    return dc.Task(nn.Linear(4, 1, bias=False).double(), loss="squared_error"), data


def die(record: Record) -> None:
    if isinstance(record, RoundRecord) and record.round == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def killed(*arguments: Any, **settings: Any) -> None:
    """`simulate` in a process of its own, which is killed in round 5."""
    with warnings.catch_warnings():  # Python 3.12 warns of a fork where there are threads; the child uses none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            dc.simulate(*arguments, progress=die, **settings)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.few(1)
@pytest.mark.parametrize("settings", [{"commit": 2}, {"store": "disk"}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_killed_and_resumed_run_ends_as_the_unbroken_one(
    task: dc.Task,
    data: dc.FederatedData,
    regression: tuple[dc.Task, dc.FederatedData],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    settings: dict[str, Any],
) -> None:
    method, with_ = CASES[case]
    if isinstance(method, MOCHA):
        task, data = regression
    how: dict[str, Any] = {"rounds": 9, "cohort": 3, "evaluate": 4, "mode": "vmap"} | settings | with_
    drawn = iter((17, 17, 23))  # what the system draws for both runs, and otherwise for the resumed process
    monkeypatch.setattr("descant.experiment.journal.randbits", lambda bits: next(drawn))
    unbroken = dc.simulate(task, data, method, out=tmp_path / "unbroken", **how)
    killed(task, data, method, out=tmp_path / "run", **how)
    assert next(drawn) == 17  # what the killed process drew in its own copy
    resumed = dc.resume(tmp_path / "run", task, data)
    assert unbroken.collapse is None
    assert_same(resumed, unbroken)


def test_what_a_run_held_on_disk_is_forgotten_by_the_one_that_overwrites_it(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path
) -> None:
    """The rows that the server holds, and its copies, as much as the clients'."""
    how: dict[str, Any] = {"rounds": 3, "cohort": 3, "evaluate": 3, "mode": "vmap", "codec": TopK(share=0.2)}
    fresh = dc.simulate(task, data, FLAME(**LOCAL), **how)
    for _ in range(2):
        again = dc.simulate(task, data, FLAME(**LOCAL), out=tmp_path / "run", store="disk", overwrite=True, **how)
        torch.testing.assert_close(held.everything(again), held.everything(fresh), rtol=0, atol=0)
