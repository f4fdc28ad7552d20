"""A run that diverges is a result: it ends cleanly, with the round and the cause."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from descant import FederatedData, Task
from descant.context import Context
from descant.errors import NoSharedModelError
from descant.methods import (
    Aggregate,
    Ditto,
    FedAvg,
    Local,
    LocalView,
    LpProj,
    Messages,
    Method,
    PFedMe,
    Tree,
)
from tests import held

HUGE: dict[str, Any] = {"lr": 1e200, "steps": 3, "batch": None}


@pytest.fixture(autouse=True, params=["at once", "later"])
def when(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When it is read whether numbers are finite: at the end of a round, as on a GPU, or wherever they come up."""
    if request.param == "later":
        monkeypatch.setattr("descant.engine.unread.READ_LATER", ("cpu",))
    return str(request.param)


@pytest.fixture(scope="module")
def linear() -> Task:
    """Squared error, whose gradient grows with the weights: descent can leave the real numbers."""
    return Task(torch.nn.Linear(4, 1).double(), loss="squared_error")


def regression(federation: Any) -> FederatedData:
    """Four clients whose target is a number."""
    data = federation((6, 3, 9, 4))
    parts = [{"train": (X, X.sum(1))} for X, _ in map(data.train.client, range(4))]
    return FederatedData.from_arrays(parts)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (FedAvg(**HUGE), "none of the 4 messages was finite"),
        (Local(**HUGE), "the state 'v' of client '0' is not finite"),
        (Ditto(solver=FedAvg(lr=0.01, steps=1), **HUGE), "the state 'v' of client '0' is not finite"),
        (PFedMe(**HUGE), "the state 'x' of client '0' is not finite"),
        (LpProj(dim=3, **HUGE), "the state 'x' of client '0' is not finite"),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else "",
)
@pytest.mark.parametrize("chunk", [1, 7])
def test_a_rate_that_diverges_ends_the_run(
    run: Any, linear: Task, federation: Any, method: Method, why: str, chunk: int
) -> None:
    done = run(method, task=linear, data=regression(federation), rounds=4, chunk=chunk, evaluate=1)
    assert done.collapse is not None
    assert (done.collapse.round, done.collapse.why) == (1, why)
    assert done.history.rounds == []
    assert list(done.history.evaluated["personal"]) == [0]


def test_a_run_that_holds_says_so_too(run: Any) -> None:
    summary = run(Local(lr=0.1, steps=1), evaluate=1).summary()
    assert summary["collapsed"] is False and summary["collapsed_round"] is None
    assert not isnan(summary["personal.test_accuracy.mean@last"])


@dataclass(frozen=True, kw_only=True)
class Poisoned(Method):
    """Every client sends its number, those in `bad` what is not one; the server keeps the mean."""

    name: ClassVar[str] = "poisoned"
    paper: ClassVar[str] = ""
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = False
    bad: tuple[int, ...] = ()
    value: float = float("nan")

    def server_start(self, ctx: Context) -> Tree:
        return {"mean": ctx.x0.new_zeros(2), "rows": ctx.x0.new_zeros(ctx.clients)}

    def client_start(self, local: LocalView) -> Tree:
        return {"count": local.start.new_zeros(len(local.start))}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        number = local.clients.double()
        bad = torch.isin(local.clients, torch.tensor(self.bad, dtype=torch.int64))
        sent = torch.where(bad, self.value, number)
        return {"clean": number[:, None].expand(-1, 2), "dirty": sent}, {"count": state["count"] + 1}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"clean": messages["clean"]})["clean"]
        return {"mean": mean, "rows": messages.into(server["rows"], "dirty")}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return torch.zeros(len(local.clients), 43, dtype=torch.float64)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_message_that_is_not_finite_is_refused_and_counted(run: Any, value: float) -> None:
    """The whole message goes, all its leaves: the mean of 0, 1, 2, 4, 5, 6 without 3 and without 6 is 2.4."""
    done = run(Poisoned(bad=(3, 6), value=value), chunk=2)
    assert [(row["received"], row["refused"]) for row in done.history.rounds] == [(5, 2)] * 3
    server = held.by_server(done)
    assert server["mean"].tolist() == pytest.approx([2.4, 2.4], abs=1e-15)
    assert server["rows"].tolist() == [0, 1, 2, 0, 4, 5, 0]
    assert done.collapse is None
    assert done.history.rounds[0]["bytes_up"] == 7 * 24  # what was sent is billed, refused or not


@dataclass(frozen=True, kw_only=True)
class Strict(Poisoned):
    """A server that does not take what is not finite, and counts its calls."""

    calls: ClassVar[list[int]] = []

    def server(self, server: Any, messages: Messages, aggregate: Aggregate) -> Tree:
        self.calls.append(server.ctx.round)
        if not messages["dirty"].isfinite().all():
            raise ZeroDivisionError("my own mistake")
        return super().server(server, messages, aggregate)


def test_a_server_that_takes_no_such_message_is_not_shown_any_that_counts(run: Any, when: str) -> None:
    Strict.calls.clear()
    done = run(Strict(bad=(3,)), chunk=7)
    assert [(row["received"], row["refused"]) for row in done.history.rounds] == [(6, 1)] * 3
    again = 2 if when == "later" else 1  # foreseen in vain, and taken without the message
    assert Strict.calls == [round for round in (1, 2, 3) for _ in range(again)]


def test_a_server_takes_finite_messages_once(run: Any) -> None:
    Strict.calls.clear()
    run(Strict(bad=()), chunk=7)
    assert Strict.calls == [1, 2, 3]


def test_a_mistake_of_the_servers_own_is_raised(run: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        run(Strict(bad=(3,)), nonfinite="keep", chunk=7)


def test_no_usable_message_is_a_collapse(run: Any) -> None:
    done = run(Poisoned(bad=tuple(range(7))))
    assert (done.collapse.round, done.collapse.why) == (1, "none of the 7 messages was finite")


def test_a_kept_message_that_is_not_finite_reaches_the_server(run: Any) -> None:
    done = run(Poisoned(bad=(3,)), nonfinite="keep")
    assert (done.collapse.round, done.collapse.why) == (1, "the server's 'rows' is not finite")


def test_kept_messages_take_fedavg_down(run: Any, linear: Task, federation: Any) -> None:
    done = run(FedAvg(**HUGE), task=linear, data=regression(federation), nonfinite="keep")
    assert (done.collapse.round, done.collapse.why) == (1, "the server's 'w' is not finite")


@dataclass(frozen=True, kw_only=True)
class Diverging(Poisoned):
    """Client 5's state, one number, leaves the real ones in the third round."""

    mute: ClassVar[bool] = True

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        last = (local.clients == 5) & (state["count"] == 2)
        return {}, {"count": torch.where(last, torch.inf, state["count"] + 1)}


def test_the_guilty_client_is_named_whatever_the_shape_of_its_state(run: Any) -> None:
    done = run(Diverging(), rounds=9, chunk=3)
    assert (done.collapse.round, done.collapse.why) == (3, "the state 'count' of client '5' is not finite")


def test_the_summary_of_a_collapsed_run_says_so(run: Any) -> None:
    done = run(Diverging(), rounds=9, evaluate=1)
    summary = done.summary()
    assert summary["collapsed"] is True
    assert summary["collapsed_round"] == 3
    assert summary["collapsed_why"] == done.collapse.why
    assert summary["rounds"] == 2
    last = {name: v for name, v in summary.items() if name.endswith("@last") and ".round" not in name}
    assert "personal.test_accuracy.mean@last" in last and all(isnan(value) for value in last.values())
    assert not isnan(summary["personal.test_accuracy.mean@best_on_test"])


@pytest.mark.parametrize("method", [Local(), LpProj()], ids=lambda method: method.name)
def test_a_method_without_a_shared_model_says_so(run: Any, method: Method) -> None:
    done = run(method, rounds=1)
    with pytest.raises(NoSharedModelError, match=f"{type(method).__name__} has no shared model"):
        done.shared()
    assert "shared" not in done.history.evaluated


def test_a_method_that_loses_its_clients_state_is_refused(run: Any) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(Poisoned):
        def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
            return {}, {}

    with pytest.raises(ValueError, match=r"Forgetful\.client was given the state \['count'\]"):
        run(Forgetful())
