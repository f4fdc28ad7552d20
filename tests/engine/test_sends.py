"""A method that says of its messages what they are not is told so: nothing of it is left out in silence."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.codecs import TopK
from descant.errors import SettingError
from descant.methods import LAST, FedAvg, Method, difference, position

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)


class Mine(FedAvg):
    name: ClassVar[str] = "mine"


def run(sends: Any, of: type[Method] = Mine, **settings: Any) -> Any:
    method: Method = type("Mine", (of,), {"sends": sends})()
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap", **settings)


@pytest.mark.parametrize(
    "sends",
    [
        {"delta": "difference"},
        ("delta",),
        None,
        difference("w"),
        {"delta": difference(LAST)},
        {3: position("w")},
        property(lambda self: {"delta": "difference"}),
    ],
)
@pytest.mark.parametrize("codec", ["native", "top-k"])
def test_what_is_sent_is_said_by_a_dict_of_what_it_is(sends: Any, codec: str) -> None:
    said = r"class Mine has sends = .*: it must be a dict .*, as in sends = \{\"v\": difference\(\"w\"\)\} where v"
    with pytest.raises(SettingError, match=said):
        run(sends, codec=codec)


def test_the_words_of_the_error_are_those_of_a_class_that_runs() -> None:
    scope: dict[str, Any] = {}
    exec('from descant.methods import difference\nsends = {"delta": difference("w")}', scope)
    assert run(scope["sends"], codec=TopK(share=0.5)).collapse is None


@pytest.mark.parametrize("codec", ["native", "top-k"])
def test_leaves_that_a_message_does_not_have_are_named(codec: str) -> None:
    said = r"`sends` of Mine names 'q', and the message has 'delta', 'n': let it name leaves that Mine.client sends"
    with pytest.raises(SettingError, match=said):
        run({"q": difference("w")}, codec=codec)


class Still(Mine):
    """It has nothing to say in any round."""

    mute: ClassVar[bool] = True

    def client(self, down: Any, state: Any, local: Any) -> Any:
        return {}, state


class Alternating(Method):
    """It sends one leaf in odd rounds, and another one in even rounds."""

    name: ClassVar[str] = "alternating"
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False
    sends: ClassVar[dict[str, Any]] = {"a": difference("a"), "b": difference("b")}

    def server_start(self, ctx: Any) -> Any:
        return {"a": ctx.x0, "b": ctx.x0}

    def broadcast(self, server: Any) -> Any:
        return {"a": server["a"], "b": server["b"]}

    def client(self, down: Any, state: Any, local: Any) -> Any:
        leaf = "a" if local.ctx.round % 2 else "b"
        return {leaf: torch.full_like(down[leaf], 0.5)}, state

    def server(self, server: Any, messages: Any, aggregate: Any) -> Any:
        (leaf,) = messages
        return {**{name: server[name] for name in "ab"}, leaf: server[leaf] + aggregate(dict(messages))[leaf]}

    def personal(self, down: Any, state: Any, local: Any) -> Any:
        return down["a"]

    def shared(self, server: Any) -> Any:
        return server["b"]


@pytest.mark.parametrize("codec", ["native", TopK(share=0.5)])
def test_a_method_may_send_other_leaves_in_other_rounds(codec: Any) -> None:
    task = dc.Task(torch.nn.Linear(4, 3))
    run = dc.simulate(task, DATA, Alternating(), rounds=4, mode="vmap", codec=codec)
    before = torch.cat([p.detach().flatten() for p in task.model.parameters()])
    for model in (run.personal(0, round="last"), run.shared(round="last")):
        moved = torch.cat([p.detach().flatten() for p in model.parameters()]) - before
        # What was left out of the first message of a leaf is in the second.
        assert set(moved.mul(100).round().tolist()) == ({100} if codec == "native" else {50, 100})


def test_who_sends_nothing_names_nothing_that_is_missing() -> None:
    assert run({"q": difference("w")}, Still).collapse is None


@pytest.mark.parametrize("codec", ["native", "top-k"])
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (difference("nope"), r"'delta' moved away from 'nope' of the broadcast, which has 'w': .* Mine.broadcast"),
        (position("nope"), r"'delta' moved away from 'nope' of the broadcast, which has 'w'"),
        (position(LAST, beside="nope"), r"'delta' lies beside 'nope' of the broadcast, which has 'w'"),
    ],
)
def test_leaves_that_a_broadcast_does_not_have_are_named(sent: Any, said: str, codec: str) -> None:
    with pytest.raises(SettingError, match=f"`sends` of Mine says that {said}"):
        run({"delta": sent}, codec=codec)


def test_what_was_sent_before_the_first_message_is_asked_for() -> None:
    with pytest.raises(SettingError, match=r"what a client sent last, and the hook first_sent has no 'delta'"):
        run({"delta": position(LAST)}, codec="top-k")


def test_a_codec_of_updates_says_how_to_say_what_is_sent() -> None:
    said = r"does not say what it sends \(`sends`\): say it, as in sends = \{\"v\": difference\(\"w\"\)\} where v"
    with pytest.raises(SettingError, match=said):
        run({}, codec="top-k")
