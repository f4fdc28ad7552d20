"""A step that is captured and replayed does what the steps do one by one.

No GPU is needed: in the place of a CUDA graph stands the program itself, which reads and writes the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.execution import Compile, Graphed, captured
from tests import held

ROUNDS = 3


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs on the processor; the list counts replays."""
    counted = [0]

    def capture(program: Callable[[], Any], execution: Any) -> tuple[Callable[[], None], Any]:
        def replay() -> None:
            counted[0] += 1
            program()

        return replay, program()

    monkeypatch.setattr(captured, "CAPTURES", ("cpu",))
    monkeypatch.setattr(captured, "_capture", capture)
    monkeypatch.setattr(Compile, "program", Graphed.program)
    return counted


def federation() -> dc.FederatedData:
    return dc.data.synthetic(clients=6, samples=40, seed=1)


METHODS = {
    "minibatches": dc.methods.FedAvg(lr=0.05, epochs=2, batch=8),
    "full batches": dc.methods.FedAvg(lr=0.05, steps=4, batch=None),
    "momentum": dc.methods.FedAvg(lr=0.05, steps=5, batch=8, momentum=0.5),
    "adam": dc.methods.FedAvg(lr=0.05, steps=5, batch=8, optimizer=dc.methods.Adam()),
    "a row that all clients share": dc.methods.FedProx(lr=0.05, steps=5, batch=8, mu=0.1),
    "rows of their own": dc.methods.Ditto(lam=0.5, steps=5, batch=8),
    "the first minibatch, held": dc.methods.PFedMe(batch=8, steps=4),
    "until a rule is met": dc.methods.LpProj(dim=5, nu=1e-1, cap=30, batch=8),
    "several at a step": dc.methods.PerFedAvg(steps=3, batch=8),
    "control variates": dc.methods.Scaffold(lr=0.05, steps=5, batch=8),
}


def run(method: dc.methods.Method, model: nn.Module | None = None, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    task = dc.Task(model or nn.Linear(60, 10))
    return dc.simulate(task, federation(), method, rounds=ROUNDS, mode="compile", device="cpu", **settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("settings", [{}, {"chunk": 4, "stragglers": 0.5}], ids=["whole", "in parts"])
def test_a_replayed_step_is_the_step(name: str, settings: dict[str, Any], replayed: list[int]) -> None:
    graphs = run(METHODS[name], **settings)
    assert replayed[0] > 0
    assert not graphs.config["execution"]["fallbacks"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "CAPTURES", ())
        one_by_one = run(METHODS[name], **settings)
    for mine, its in zip(held.everything(graphs).items(), held.everything(one_by_one).items(), strict=True):
        assert mine[0] == its[0]
        torch.testing.assert_close(mine[1], its[1], rtol=0, atol=0, msg=mine[0])
    for mine, its in zip(graphs.history.rounds, one_by_one.history.rounds, strict=True):
        assert {**mine, "seconds": 0.0} == {**its, "seconds": 0.0}


def test_masks_of_dropout_follow_the_step(replayed: list[int]) -> None:
    model = nn.Sequential(nn.Linear(60, 10), nn.Dropout(0.5))
    for method in (METHODS["minibatches"], METHODS["full batches"]):
        graphs = run(method, model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(captured, "CAPTURES", ())
            one_by_one = run(method, model)
        assert held.shared(graphs).equal(held.shared(one_by_one))


def test_a_step_that_cannot_be_captured_is_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(program: Callable[[], Any], execution: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(captured, "CAPTURES", ("cpu",))
    monkeypatch.setattr(captured, "_capture", refuses)
    monkeypatch.setattr(Compile, "program", Graphed.program)
    done = run(METHODS["minibatches"])
    assert any("CUDA graph" in note for note in done.config["execution"]["fallbacks"])


def test_examples_that_attackers_change_are_copied_to_where_one_graph_reads_them(replayed: list[int]) -> None:
    captures: list[Any] = []
    plain = captured._capture

    def counted(program: Callable[[], Any], execution: Any) -> Any:
        captures.append(execution)
        return plain(program, execution)

    attack = dc.attacks.OptimizedBackdoor(target=1, size=4, steps=1)
    settings: dict[str, Any] = {"attacks": attack, "malicious": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "_capture", counted)
        graphs = run(METHODS["minibatches"], **settings)
    assert len(captures) == 2, "one that reads the first examples, and one for all that come after them"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "CAPTURES", ())
        one_by_one = run(METHODS["minibatches"], **settings)
    assert held.shared(graphs).equal(held.shared(one_by_one))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minibatches", "adam", "until a rule is met"])
def test_a_compiled_step_writes_in_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(captured, "CAPTURES", ("cpu",))
    monkeypatch.setattr(captured, "_capture", lambda program, execution: (program, program()))
    compiled = run(METHODS[name])
    assert not compiled.config["execution"]["fallbacks"]
    monkeypatch.setattr(captured, "CAPTURES", ())
    one_by_one = run(METHODS[name])
    for mine, its in zip(held.everything(compiled).items(), held.everything(one_by_one).items(), strict=True):
        torch.testing.assert_close(mine[1], its[1], rtol=1e-4, atol=1e-5, msg=mine[0])


@pytest.mark.parametrize("name", ["a row that all clients share", "rows of their own"])
def test_a_row_that_all_clients_share_is_kept_once(name: str, replayed: list[int]) -> None:
    graphs: list[Any] = []
    plain = captured._Graph.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        graphs.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured._Graph, "__init__", noted)
        run(METHODS[name])
    rows = [row for graph in graphs for row in graph.held.rows]
    assert rows
    assert all(row.stride(0) == 0 for row in rows)
