"""A class of a user's own whose hooks cannot be called is told which, and how to write it, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partialmethod, wraps
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.attacks import Attack
from descant.errors import SettingError
from descant.hooks import check_hooks
from descant.kinds import BASES, CATALOG
from descant.methods import FedAvg, Method

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
ARGUMENTS = {
    "server_start": "ctx",
    "client_start": "local",
    "broadcast": "server",
    "client": "down, state, local",
    "server": "server, messages, aggregate",
    "reply": "server",
    "hear": "reply, state, local",
    "personal": "down, state, local",
    "shared": "server",
    "trained": "down, state, local",
    "resumes": "down, state, local",
    "first_sent": "ctx",
    "cohort_weights": "server",
    "silent": "server",
    "fetches": "down, state, local",
    "check_run": "rounds, layout",
    "judged": "down, state, local",
}


@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"


def with_hook(hook: str, function: Any) -> Method:
    method: Method = type("Mine", (Mine,), {hook: function})()
    return method


def run(method: Method, **settings: Any) -> Any:
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap", **settings)


@pytest.mark.parametrize("hook", ARGUMENTS)
def test_a_hook_that_takes_too_much_is_told_what_it_is_called_with(hook: str, tmp_path: Path) -> None:
    names = ARGUMENTS[hook]
    said = (
        rf"the hook Mine.{hook} takes \({names}, more\) and is called with \({names}\): "
        rf"write it as {hook}\(self, {names}\)"
    )
    source = f"def hook(self, {names}, more): raise AssertionError('called')"
    scope: dict[str, Any] = {}
    exec(source, scope)
    with pytest.raises(SettingError, match=said):
        run(with_hook(hook, scope["hook"]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # nothing was begun


def test_every_hook_that_is_called_is_looked_at() -> None:
    functions = {name for name, hook in vars(Method).items() if callable(hook) and not name.startswith("_")}
    assert functions == set(ARGUMENTS)


@pytest.mark.parametrize(
    ("hook", "function", "said"),
    [
        ("client", lambda self, down: ({}, {}), r"takes \(down\) and is called with \(down, state, local\)"),
        ("client", lambda: ({}, {}), r"takes \(\) and is called with \(down, state, local\)"),
        ("broadcast", staticmethod(lambda: {}), r"takes \(\) and is called with \(server\)"),
        (
            "broadcast",
            property(lambda self: {}),
            r"is a property, and is called as a function: write it as broadcast",
        ),
        ("broadcast", {"w": 1}, r"is a dict, and is called as a function: write it as broadcast\(self, server\)"),
        ("held", lambda self: ("u",), r"is a function, and is read as a property: write @property above it"),
        ("sends", lambda self: {}, r"is a function, and is read as a property: write @property above it"),
    ],
)
def test_a_hook_of_another_form_is_told_how_to_write_it(hook: str, function: Any, said: str) -> None:
    with pytest.raises(SettingError, match=f"the hook Mine.{hook} {said}"):
        run(with_hook(hook, function))


def test_a_hook_may_take_what_it_likes_where_it_can_be_called() -> None:
    def anything(self: Any, *arguments: Any) -> Any:
        return FedAvg.client(self, *arguments)

    def more(self: Any, server: Any, deep: bool = True) -> Any:
        return FedAvg.broadcast(self, server)

    def other(self: Any, of: Any, ctx: Any) -> Any:
        return FedAvg.server_start(self, ctx)

    def handing_more(hook: Any) -> Any:
        @wraps(hook)
        def wrapped(self: Any, server: Any) -> Any:
            return hook(self, server, 1)

        return wrapped

    @handing_more
    def inner(self: Any, server: Any, number: int) -> Any:
        return FedAvg.broadcast(self, server)

    for hook, function in [("client", anything), ("broadcast", more), ("server_start", partialmethod(other, None))]:
        run(with_hook(hook, function))
    run(with_hook("broadcast", inner))
    run(with_hook("weighs", True))


def test_a_solver_and_an_attack_are_looked_at_too() -> None:
    solver = with_hook("broadcast", lambda self: {})
    with pytest.raises(SettingError, match=r"the hook Mine.broadcast takes \(\) and is called with \(server\)"):
        run(dc.methods.Ditto(solver=solver))
    attack: Attack = type("Loud", (dc.attacks.SignFlip,), {"forge": lambda self, mail: mail})()
    with pytest.raises(
        SettingError, match=r"the hook Loud.forge takes \(mail\) and is called with \(ctx, state, mai"
    ):
        run(dc.methods.FedAvg(), attacks=attack, malicious=1)


class Undecorated(Mine):
    name: ClassVar[str] = "undecorated"
    mix: float = 0.5


def test_a_field_of_a_class_without_the_decorator_is_named() -> None:
    said = r"declares mix, which the class takes for no field: write @dataclass\(frozen=True, kw_only=True\) above"
    with pytest.raises(SettingError, match=f"method: Undecorated {said}"):
        run(Undecorated())


class Scaled:
    scale: float  # whoever mixes this in gives it


class Mixed(Scaled, Mine):
    @property
    def scale(self) -> float:  # type: ignore[override]
        return 2 * self.lr  # type: ignore[operator]


def test_what_a_mixin_asks_for_may_be_given_by_a_property() -> None:
    run(Mixed())


class Named(Mine):
    name: str = "named"  # type: ignore[misc]
    _note: str = "its own"


def test_what_every_method_says_of_itself_may_be_declared_as_it_is() -> None:
    run(Named())


@pytest.mark.parametrize("kind", BASES)
def test_all_that_descant_brings_passes(kind: str) -> None:
    for cls in CATALOG[kind].values():
        assert isinstance(cls, type)
        check_hooks(cls, BASES[kind])
