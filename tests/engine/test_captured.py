"""A step that is captured and replayed does what the steps do one by one.

No GPU is needed: in the place of a CUDA graph stands the program itself, which reads and writes the same tensors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.attacks import Attack
from descant.context import Context
from descant.engine.cohort import finished_share
from descant.execution import Compile, Graphed, batches, captured
from descant.trees import Tree
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


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are made."""
    made: list[Any] = []
    plain = captured._Graph.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(captured._Graph, "__init__", noted)
    return made


def federation(clients: int = 6) -> dc.FederatedData:
    return dc.data.synthetic(clients=clients, samples=40, seed=1)


METHODS = {
    "minibatches": dc.methods.FedAvg(lr=0.05, epochs=2, batch=8),
    "full batches": dc.methods.FedAvg(lr=0.05, steps=4, batch=None),
    "momentum": dc.methods.FedAvg(lr=0.05, steps=5, batch=8, momentum=0.5),
    "adam": dc.methods.FedAvg(lr=0.05, steps=5, batch=8, optimizer=dc.methods.Adam()),
    "a row that all clients share": dc.methods.FedProx(lr=0.05, steps=5, batch=8, mu=0.1),
    "rows of their own": dc.methods.Ditto(lam=0.5, steps=5, batch=8),
    "the first minibatch, held": dc.methods.PFedMe(batch=8, steps=4),
    "until a rule is met": dc.methods.LpProj(dim=5, nu=5.0, cap=30, batch=8),
    "several at a step": dc.methods.PerFedAvg(steps=3, batch=8),
    "control variates": dc.methods.Scaffold(lr=0.05, steps=5, batch=8),
}


def run(
    method: dc.methods.Method,
    model: nn.Module | None = None,
    data: dc.FederatedData | None = None,
    **settings: Any,
) -> dc.Run:
    torch.manual_seed(0)
    task, data = dc.Task(model or nn.Linear(60, 10)), data or federation()
    return dc.simulate(task, data, method, rounds=ROUNDS, mode="compile", device="cpu", **settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("settings", [{}, {"chunk": 4, "stragglers": 0.5}], ids=["whole", "in parts"])
def test_a_replayed_step_is_the_step(name: str, settings: dict[str, Any], replayed: list[int]) -> None:
    graphs = run(METHODS[name], **settings)
    assert replayed[0] > 0
    if name == "until a rule is met":
        assert all(0 < row["capped"] < 6 for row in graphs.history.rounds), "by some, and not by others"
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


def test_a_run_that_has_ended_holds_no_graphs(replayed: list[int]) -> None:
    """They hold a GPU's memory, which those who keep many runs need for others."""
    done = run(METHODS["rows of their own"])
    execution = held.simulation(done).execution
    assert replayed[0] > 0 and isinstance(execution, Compile) and not execution.programs
    assert done.personal(0) is not None


def test_no_garbage_is_collected_while_a_graph_is_captured() -> None:
    """Another graph among it could not be freed then, and its memory would be lost."""
    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        try:
            with pytest.raises(RuntimeError, match="stop"), captured._garbage_waits():
                assert not gc.isenabled()
                raise RuntimeError("stop")
            assert gc.isenabled() == collects
        finally:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class Relabelled(Attack):
    """Before every round but the first the labels of the malicious are others; their inputs stay."""

    name: ClassVar[str] = "relabelled"

    def adapt(self, ctx: Context, state: Tree, data: dc.FederatedData, who: Tensor, sight: Any) -> Tree | None:
        return {"rounds": torch.tensor(ctx.round)} if ctx.round > 1 else None

    def recall(self, ctx: Context, state: Tree, data: dc.FederatedData, who: Tensor) -> dc.FederatedData:
        labels = data.train.targets
        others = torch.where(torch.isin(data.train.owners, who), (labels + 1) % 10, labels)
        return replace(data, train=replace(data.train, targets=others))


def test_labels_that_attackers_change_are_read_too(replayed: list[int]) -> None:
    data = federation()
    settings: dict[str, Any] = {"attacks": Relabelled(), "malicious": 2, "data": data}
    before = data.train.targets.clone()
    graphs = run(METHODS["minibatches"], **settings)
    assert data.train.targets.equal(before), "what a graph reads in its place is not written to"
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


@pytest.mark.parametrize("name", ["minibatches", "until a rule is met", "the first minibatch, held"])
def test_minibatches_that_are_drawn_a_few_steps_at_a_time_are_the_same(name: str, replayed: list[int]) -> None:
    at_once = run(METHODS[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_WINDOW", 3 * 6 * 8)  # three steps of six clients
        in_parts = run(METHODS[name])
    for mine, its in zip(held.everything(in_parts).items(), held.everything(at_once).items(), strict=True):
        assert mine[0] == its[0]
        assert mine[1].equal(its[1]), mine[0]


def test_who_straggles_in_one_round_does_not_in_the_next(replayed: list[int], graphs: list[Any]) -> None:
    """One graph is told of all clients alike, of each for itself, and of all alike again."""
    seed, steps = 6, 5
    shares = [finished_share(seed, t, torch.arange(6), 0.2) for t in range(1, ROUNDS + 1)]
    assert [bool(((share * steps).ceil() < steps).any()) for share in shares] == [False, True, False]
    method = dc.methods.FedAvg(lr=0.05, steps=steps, batch=8, stragglers="keep")
    replays = run(method, seed=seed, stragglers=0.2)
    assert graphs and not replays.config["execution"]["fallbacks"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "CAPTURES", ())
        one_by_one = run(method, seed=seed, stragglers=0.2)
    assert held.shared(replays).equal(held.shared(one_by_one))


def test_fewer_go_on_where_the_others_have_finished(replayed: list[int], graphs: list[Any]) -> None:
    method = dc.methods.FedAvg(lr=0.05, steps=9, batch=8, stragglers="keep")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_WINDOW", 2 * 20 * 8)  # so that a graph may begin with minibatches of later steps
        replays = run(method, data=federation(20), stragglers=1.0)
    assert len({len(graph.held.left) for graph in graphs}) > 1, "a graph for all, and one for those who go on"
    assert not replays.config["execution"]["fallbacks"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "CAPTURES", ())
        one_by_one = run(method, data=federation(20), stragglers=1.0)
    torch.testing.assert_close(held.shared(replays), held.shared(one_by_one), rtol=0, atol=0)


def test_a_graph_copies_nothing_that_it_holds_already(replayed: list[int], graphs: list[Any]) -> None:
    """If the same clients take as many steps in every round, it is told of them once."""
    run(dc.methods.FedAvg(lr=0.05, steps=5, batch=8))
    (graph,) = graphs
    (source,) = graph.sources
    written = {name: getattr(graph.held, name)._version for name in ("left", "begin", "met", "taken")}
    assert written == {"left": 1, "begin": 0, "met": 0, "taken": 0}
    assert source.first._version == source.keys._version == 1
    assert source.positions._version == 1 + ROUNDS, "when it is captured, and in every round"


@pytest.mark.parametrize("name", ["a row that all clients share", "rows of their own"])
def test_a_row_that_all_clients_share_is_kept_once(name: str, replayed: list[int], graphs: list[Any]) -> None:
    run(METHODS[name])
    rows = [row for graph in graphs for row in graph.held.rows]
    assert rows
    assert all(row.stride(0) == 0 for row in rows)
