"""A method of a user's own that leaves something out, or returns something else, is told what and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.aggregators import Mean
from descant.engine.view import View
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, Method

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)


@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"


class OneDict(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, _ = super().client(down, state, local)
        return message | {"more": local.start}  # two names, which would be taken apart


class Nothing(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        return None


class OneRow(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, state = super().client(down, state, local)
        return {name: leaf[0] for name, leaf in message.items()}, state


class Bare(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        return server["w"] if "w" in server else next(iter(server.values()))


class Forgets(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        return {}


class Misspelt(Mine):
    def server_start(self, ctx: Any) -> Any:
        return super().server_start(ctx) | {"mom": torch.zeros_like(ctx.x0)}

    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        new = super().server(server, messages, aggregate)
        return {**server, **new, "momm": new["w"] - server["w"]}


class Unsent(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        super().client(down, state, local)
        return {}, state


class Alone(Unsent):
    """It says that it never sends."""

    mute: ClassVar[bool] = True


class OwnMean(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        return {"w": server["w"] + messages["delta"].mean(0)}


class Writes(Misspelt):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        server["momm"] = server["w"]
        return {**server, **FedAvg.server(self, server, messages, aggregate)}


class InSomeRounds(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        return dict(server) if server.ctx.round % 2 else super().server(server, messages, aggregate)


class OneModel(Mine):
    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return super().personal(down, state, local)[0]


class Leaves(Mine):
    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return {"v": super().personal(down, state, local)}


class MoreState(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        message, state = super().client(down, state, local)
        return message, state | {"more": local.start}


class NoStart(Mine):
    def client_start(self, local: Any) -> Any:
        return None


class NoServerStart(Mine):
    def server_start(self, ctx: Any) -> Any:
        return None


class TakenName(Mine):
    def server_start(self, ctx: Any) -> Any:
        return super().server_start(ctx) | {"aggregator.v": ctx.x0}


class NoBroadcast(Mine):
    def broadcast(self, server: Any) -> Any:
        return None


class NoShared(Mine):
    def shared(self, server: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (OneDict(), r"OneDict.client returned one dict \(.*more\): it must return two dicts, \(message, state\)"),
        (Nothing(), r"Nothing.client returned nothing \(None\): it must return two dicts"),
        (
            OneRow(),
            r"OneRow.client returned a tensor of shape \(15,\) for '.*' as message: .* row a client, 3 here",
        ),
        (Bare(), r"Bare.server returned a tensor of shape \(15,\): it must return a dict of tensors"),
        (
            Forgets(),
            r"Forgets.server returned one dict \(empty\): it must return the new state with all of its leaves",
        ),
        (OneModel(), r"OneModel.personal returned a tensor of shape \(15,\): .* \[K, d\], here of shape \(3, 15\)"),
        (Leaves(), r"Leaves.personal returned one dict \(v\): it must return a tensor \[K, d\]"),
        (MoreState(), r"MoreState.client was given the state \[\] and returned \['more'\]: .* the same leaves"),
        (NoStart(), r"NoStart.client_start returned nothing \(None\): it must return a dict of tensors"),
        (
            NoServerStart(),
            r"NoServerStart.server_start returned nothing \(None\): it must return a dict of tensors",
        ),
        (TakenName(), r"TakenName.server_start: the name 'aggregator.v' is taken; choose another"),
        (NoBroadcast(), r"NoBroadcast.broadcast returned nothing \(None\): it must return a dict of tensors"),
        (NoShared(), r"NoShared.shared returned nothing \(None\): it must return a tensor \[d\], here .* \(15,\)"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(method: Method, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap")


class AsksMessages(Mine):
    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        return {"w": aggregate({name: messages[name] for name in ("u",)})["u"]}


class AsksState(Mine):
    def client(self, down: Any, state: Any, local: Any) -> Any:
        return {"w": state["v"]}, state


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            AsksMessages(),
            "AsksMessages.server asked for 'u', which is not there: 'server' has 'w'; 'messages' has 'delta', 'n'",
        ),
        (AsksState(), "AsksState.client asked for 'v', which is not there: 'down' has 'w'; 'state' has no leaves"),
    ],
)
def test_a_hook_that_asks_for_a_leaf_that_is_not_there_is_told_which_are(method: Method, said: str) -> None:
    with pytest.raises(SettingError, match=f"^the hook {said}$"):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap")


def test_an_error_of_what_a_hook_calls_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise KeyError("u")

    monkeypatch.setattr(View, "run", fails)
    with pytest.raises(KeyError, match=r"^'u'\nin the run of 'mine' \(seed 0\)$"):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, Mine(), rounds=1, mode="vmap")


def test_a_server_that_returns_a_leaf_more_is_refused() -> None:
    said = (
        r"Misspelt.server was given the state \['mom', 'w'\] and returned \['mom', 'momm', 'w'\]: .* server_start"
    )
    with pytest.raises(SettingError, match=said):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, Misspelt(), rounds=1, mode="vmap")
    with pytest.raises(SettingError, match=r"Writes.server was given the state \['mom', 'w'\] and returned"):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, Writes(), rounds=1, mode="vmap")


def test_a_client_that_forgets_to_send_is_refused_unless_its_class_says_so() -> None:
    task = dc.Task(torch.nn.Linear(4, 3))
    with pytest.raises(
        SettingError, match=r"Unsent.client sent nothing, and Unsent.server is called only with mess"
    ):
        dc.simulate(task, DATA, Unsent(), rounds=1, mode="vmap")
    run = dc.simulate(task, DATA, Alone(), rounds=1, mode="vmap")
    assert run.history.rounds[0]["bytes_up"] == 0


def test_an_aggregator_that_a_server_does_not_call_is_refused() -> None:
    task = dc.Task(torch.nn.Linear(4, 3))
    dc.simulate(task, DATA, OwnMean(), rounds=1, mode="vmap")
    said = (
        r"OwnMean.server does not call `aggregate`, so that aggregator = 'coordinate-median' would change nothing"
    )
    with pytest.raises(SettingError, match=said):
        dc.simulate(task, DATA, OwnMean(), rounds=1, mode="vmap", aggregator="coordinate-median")
    with pytest.raises(SettingError, match=said):
        dc.simulate(task, DATA, Ditto(solver=OwnMean()), rounds=1, mode="vmap", aggregator="coordinate-median")
    dc.simulate(task, DATA, InSomeRounds(), rounds=2, mode="vmap", aggregator="coordinate-median")


def averaging(given: Any) -> Mean:
    """An aggregator of a user's own that returns what `given` makes of the messages."""
    own: Mean = type("Own", (Mean,), {"__call__": lambda self, leaves, weights=None, record=None: given(leaves)})()
    return own


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            lambda leaves: {n: x.mean(1) for n, x in leaves.items()},
            r"a tensor of shape \(3,\) for 'delta': it must",
        ),
        (
            dict,
            r"a tensor of shape \(3, 15\) for 'delta': it must return a tensor of shape \(15,\), as each of the 3",
        ),
        (
            lambda leaves: {},
            r"one dict \(empty\): it must return a dict of what it made of every leaf .*, 'delta' too",
        ),
        (
            lambda leaves: None,
            r"nothing \(None\): it must return a dict of what it made of every leaf of the messages",
        ),
        (lambda leaves: leaves["delta"].mean(0), r"a tensor of shape \(15,\): it must return a dict"),
    ],
    ids=["axis", "rows", "empty", "nothing", "bare"],
)
def test_an_aggregator_of_ones_own_that_returns_something_else_is_named(given: Any, said: str) -> None:
    with pytest.raises(SettingError, match=rf"the hook Own.__call__ returned {said}"):
        dc.simulate(
            dc.Task(torch.nn.Linear(4, 3)), DATA, Mine(), rounds=1, mode="vmap", aggregator=averaging(given)
        )


SOURCE = """
from dataclasses import dataclass
from descant.methods import Method

@dataclass(frozen=True, kw_only=True)
class Unsaid(Method):
    has_shared = False
    def client(self, down, state, local): return {}, state
    def personal(self, down, state, local): return local.start
"""


def test_what_a_class_must_say_of_itself_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unsaid_method.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    said = r"is no complete method: set name, trains, personalizes in its class"
    task = dc.Task(torch.nn.Linear(4, 3))
    with pytest.raises(SettingError, match=f"'unsaid_method:Unsaid' {said}"):
        dc.simulate(task, DATA, "unsaid_method:Unsaid", rounds=1)
    from importlib import import_module

    with pytest.raises(SettingError, match=f"method: Unsaid {said}"):
        dc.simulate(task, DATA, import_module("unsaid_method").Unsaid(), rounds=1)
