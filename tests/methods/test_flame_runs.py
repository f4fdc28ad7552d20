"""FLAME and its relatives in whole runs: every mode, any chunks, what travels, and after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.aggregators import Aggregator, unheard
from descant.aggregators import RecordFigure as Reports
from descant.methods import FLAME, FedADMM, LpProjADMM, Method
from tests import held
from tests.interrupted import assert_same, interrupt

METHODS = [
    FLAME(lr=0.1, epochs=2, batch=4, lam=0.8),
    FLAME(lr=0.1, batch=4, eps=1e-3, cap=12, weighted=True),
    LpProjADMM(lr=0.1, steps=3, batch=4, dim=5, pull="global"),
    FedADMM(lr=0.1, batch=4, eps=1e-2, cap=12, weighted=True),
]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS, ids=[f"{i}-{m.name}" for i, m in enumerate(METHODS)])
SIZES = (6, 1, 9, 4, 13, 2, 7, 3, 11, 5, 8, 1, 10)


@pytest.fixture(scope="module")
def thirteen() -> dc.FederatedData:
    """So many clients that those who finish early are left out of the batch."""
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in SIZES]
    return dc.FederatedData.from_arrays([{"train": (x, (x[:, 0] > 0).long() + (x[:, 1] > 0))} for x in rows])


def states(
    task: dc.Task, data: dc.FederatedData, method: Method, **settings: Any
) -> tuple[dc.Run, dict[str, Tensor]]:
    how: dict[str, Any] = {"rounds": 3, "cohort": 9, "stragglers": 0.4, "evaluate": 3, "mode": "vmap"} | settings
    run = dc.simulate(task, data, method, **how)
    assert run.collapse is None
    return run, {**held.by_server(run), **held.by_clients(run)}


def agree(task: dc.Task, data: dc.FederatedData, method: Method, **other: Any) -> dc.Run:
    plain, expected = states(task, data, method)
    run, found = states(task, data, method, **other)
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert torch.allclose(found[name], leaf, rtol=0, atol=1e-10), name
    for a, b in zip(plain.history.rounds, run.history.rounds, strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}
    assert float((expected["theta"] - task.start()).abs().max()) > 1e-2
    return run


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("other", [{"mode": "loop"}, {"chunk": 1}, {"chunk": 4}], ids=str)
def test_results_depend_neither_on_the_mode_nor_on_the_chunks(
    thirteen: dc.FederatedData, linear: dc.Task, method: Method, other: dict[str, Any]
) -> None:
    agree(linear, thirteen, method, **other)


@pytest.mark.slow
@EVERY_METHOD
def test_compiled_steps_give_what_vmap_gives(thirteen: dc.FederatedData, linear: dc.Task, method: Method) -> None:
    run = agree(linear, thirteen, method, mode="compile", chunk=5)
    found = run.config["execution"]
    assert (found["mode"], found["fallbacks"]) == ("compile", [])


@pytest.mark.parametrize(
    ("method", "up", "down"),
    [
        (FLAME(steps=1), 4 * 15, 4 * 15),  # u_i up, w down
        (FLAME(steps=1, weighted=True), 4 * 15 + 4, 4 * 15 + 4),  # and n_i up, n down
        (LpProjADMM(steps=1, dim=6), 4 * 6, 4 * 6),
        (FedADMM(steps=1), 4 * 15, 4 * 15),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else "",
)
def test_what_travels_is_billed(thirteen: dc.FederatedData, method: Method, up: int, down: int) -> None:
    run = dc.simulate(dc.Task(nn.Linear(4, 3)), thirteen, method, rounds=2, cohort=5, mode="vmap")
    for row in run.history.rounds:
        assert (row["bytes_up"], row["bytes_down"]) == (5 * up, 5 * down)


def test_n_is_told_once_everyone_was_heard_and_estimated_before(
    thirteen: dc.FederatedData, linear: dc.Task
) -> None:
    method, sizes = FLAME(steps=1, weighted=True), torch.tensor(SIZES)
    for rounds, everyone in ((1, False), (3, False), (30, True)):
        run, state = states(linear, thirteen, method, rounds=rounds, cohort=4)
        heard = state["n"] > 0
        assert bool(heard.all()) == everyone and torch.equal(state["n"][heard], sizes.int()[heard])
        live = held.simulation(run)
        told = method.broadcast(live.server.view(live.context(rounds)))["n"]
        assert float(told) == pytest.approx(13 * float(sizes[heard].double().mean()))  # type: ignore[arg-type]
    assert float(told) == sum(SIZES)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Shortest(Aggregator):
    """The message whose primary leaf is the shortest: who that is matters for all leaves."""

    name: ClassVar[str] = "shortest"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Reports = unheard
    ) -> dict[str, Tensor]:
        chosen = next(iter(leaves.values())).norm(dim=1).argmin()
        return {name: leaf[chosen] for name, leaf in leaves.items()}


def test_an_aggregator_that_selects_does_so_among_all_clients(thirteen: dc.FederatedData) -> None:
    """w is one of the thirteen u_i that the server holds; statistics come from one of the few that sent some."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    some = dc.FederatedData.from_arrays(
        [{"train": thirteen.train.client(k)} for k in range(13) if SIZES[k] > 1], classes=3
    )
    method = FLAME(lr=0.1, steps=2, batch=None)
    run = dc.simulate(
        dc.Task(model), some, method, rounds=5, cohort=2, seed=3, aggregator=Shortest(), mode="vmap", evaluate=5
    )
    u, kept = held.by_server(run)["u"], held.by_clients(run)["statistics.personal"]
    assert torch.equal(held.shared(run), u[u.norm(dim=1).argmin()])
    live = held.simulation(run)
    senders = live.server.sample(live.context(5)).tolist()  # of the last round
    assert any(torch.equal(live.server.statistics, kept[k]) for k in senders)


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("settings", [{"commit": 2}, {"store": "disk"}], ids=str)
def test_a_resumed_run_ends_as_the_unbroken_one(
    thirteen: dc.FederatedData, linear: dc.Task, tmp_path: Path, method: Method, settings: dict[str, Any]
) -> None:
    """To the bit: the duals, the eps_i and what the server holds of every client included."""
    how: dict[str, Any] = {"rounds": 8, "cohort": 3, "stragglers": 0.3, "evaluate": 4, "mode": "vmap"} | settings
    unbroken = dc.simulate(linear, thirteen, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(linear, thirteen, method, out=tmp_path / "run", progress=interrupt(5), **how)
    resumed = dc.resume(tmp_path / "run", linear, thirteen)
    assert_same(resumed, unbroken)


def test_flame_can_be_named_in_a_settings_file() -> None:
    spec = {"name": "lp-proj-admm", "dim": 4, "projection": "identity", "eps": 0.1, "weighted": True}
    assert dc.catalog.build("methods", spec).eps == 0.1
    for kind in (FLAME, LpProjADMM, FedADMM):
        assert dc.catalog.build("methods", dc.catalog.describe(kind())) == kind()
