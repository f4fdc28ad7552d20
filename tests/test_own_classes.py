"""What a user's own class says by mistake, and nobody would hear, is named before anything runs."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import descant as dc
from descant.aggregators import Mean
from descant.catalog import build
from descant.errors import SettingError
from descant.hooks import check_declared, check_names
from descant.kinds import BASES, CATALOG
from descant.methods import Ditto, FedAvg, Hush, Method

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)


def run(method: Method, **settings: Any) -> Any:
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap", **settings)


def given(**names: Any) -> Method:
    method: Method = type("Typo", (Ditto,), names)()
    return method


@pytest.mark.parametrize(
    ("written", "hook"),
    [
        ("setp", "step"),
        ("personnal", "personal"),
        ("Server", "server"),
        ("brodcast", "broadcast"),
        ("serverstart", "server_start"),
        ("clients_start", "client_start"),
        ("drop_stragglers", "drops_stragglers"),
    ],
)
def test_a_misspelt_hook_is_told_which_one_it_may_be(written: str, hook: str, tmp_path: Path) -> None:
    said = rf"class Typo defines {written}, and does not call it: is it meant to be the hook {hook}\? Rename"
    for function in (lambda self, *rest: None, property(lambda self: None), staticmethod(lambda: None)):
        with pytest.raises(SettingError, match=said):
            run(given(**{written: function}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_misspelt_hook_of_a_solver_and_of_an_aggregator_is_named() -> None:
    solver = type("Solver", (FedAvg,), {"brodcast": lambda self, server: {}})()
    with pytest.raises(SettingError, match="class Solver defines brodcast, and does not call it"):
        run(Ditto(solver=solver))
    aggregator = type("Own", (Mean,), {"combin": lambda self, ctx, state, mail: (state, {})})()
    with pytest.raises(
        SettingError, match=r"class Own defines combin, and does not call it: is it .* the hook combine\?"
    ):
        run(FedAvg(), aggregator=aggregator)


@pytest.mark.parametrize("name", ["step", "personalize"])
def test_a_hook_of_another_method_is_told_which_ones_there_are(name: str) -> None:
    mine = type("Mine", (Hush,), {name: lambda self, *rest: None})()
    said = rf"class Mine defines {name}, and does not call it: \w+ has such a hook, and Hush has .*explore, settle"
    with pytest.raises(SettingError, match=said):
        run(mine)


class Held(Hush):
    """It calls a function that is called as a hook of other methods."""

    def stretch(self, d: int) -> float:
        return self.step()

    def step(self) -> float:
        return 0.3


def test_a_function_that_the_class_calls_may_be_called_as_a_hook_of_another() -> None:
    run(Held())


def walk(method: Any, w: Any, local: Any) -> Any:
    """What a class of this file leaves to a function beside it."""
    return local.run(method.explore, w, work=method.work, role="shared")


class Beside(FedAvg):
    """Its functions are called from outside of it, and as hooks of other methods."""

    def client(self, down: Any, state: Any, local: Any) -> Any:
        return self.message(walk(self, down["w"], local) - down["w"], local), state

    def explore(self, x: Any, grad: Any) -> Any:
        return self.down(x, grad(x))

    def dim(self) -> int:
        return 3

    def stretch(self, d: int) -> str:
        return f"for a notebook: {d}"


def test_a_function_that_is_called_beside_the_class_or_does_no_local_work_may_be_called_as_it_likes() -> None:
    run(Beside())


class Helped(Ditto):
    """Its functions are called by itself, or their names are like no hook's."""

    def client(self, down: Any, state: Any, local: Any) -> Any:
        local.run(self.step1, down["w"], work=self.work, role="personal/1")
        return super().client(down, state, local)

    def step1(self, x: Any, grad: Any) -> Any:
        return x - self.clients() * grad(x)

    def clients(self) -> float:
        return 0.1

    def explain(self) -> str:
        return "unlike"

    def _setp(self) -> None: ...


def test_functions_that_a_class_calls_itself_or_that_are_like_no_hook_are_allowed() -> None:
    run(Helped())
    run(type("Below", (Helped,), {"explain": lambda self: "more", "step1": lambda self, x, grad: x})())


class Seven(Ditto):
    lam = 7.0


@dataclass(frozen=True, kw_only=True)
class Eight(Ditto):
    lam = 8.0


@dataclass(frozen=True, kw_only=True)
class Whole(Ditto):
    lam = 8


class Nine(Ditto):
    lam: float = 9.0


def test_a_field_that_is_set_without_a_type_is_told_how_to_write_it() -> None:
    said = r"class Seven sets lam, which has no type there and so is no field: write lam: float = 7.0, and @"
    with pytest.raises(SettingError, match=said):
        run(Seven())
    said = r"class Eight sets lam, which has no type there and so is no field: write lam: float = 8.0$"
    with pytest.raises(SettingError, match=said):
        run(Eight())
    with pytest.raises(
        SettingError, match=r"class Whole sets lam, .*: write lam: float \| tuple\[float, \.\.\.\] = 8$"
    ):
        run(Whole())
    with pytest.raises(SettingError, match=r"class Eight sets lam"):
        run(dataclass(frozen=True, kw_only=True)(type("Below", (Eight,), {}))())


def test_a_field_that_is_declared_anew_without_the_decorator_is_named() -> None:
    with pytest.raises(
        SettingError, match=r"Nine declares lam, which the class takes for no field: write @dataclass"
    ):
        run(Nine())


@dataclass(frozen=True, kw_only=True)
class Works(Ditto):
    work: int = 3  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Downs(Ditto):
    down: float = 0.5  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Says(Ditto):
    needs: str = "rows"


def test_a_field_that_hides_what_a_class_above_computes_is_named() -> None:
    with pytest.raises(SettingError, match=r"class Works has a field work, which hides what Descent computes by"):
        run(Works())
    with pytest.raises(SettingError, match=r"class Downs has a field down, which hides what Descent computes by"):
        run(Downs())
    run(Says())


class Typed(Ditto):
    solver: FedAvg  # for a type checker


@dataclass(frozen=True, kw_only=True)
class Declared(Nine):
    lam: float = 10.0


def test_a_field_may_be_declared_anew_further_down_or_for_its_type_alone() -> None:
    run(Typed())
    run(Declared())
    assert Declared().lam == 10.0


@dataclass(frozen=True, kw_only=True)
class Scaled(FedAvg):
    name: ClassVar[str] = "scaled"
    scale: InitVar[float] = 1.0

    def __post_init__(self, scale: float) -> None:
        super().__post_init__()


class Mixin:
    other: int
    cache: dict[str, int] = {}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class Mixed(Mixin, FedAvg):
    name: ClassVar[str] = "mixed"

    @cached_property
    def other(self) -> int:  # type: ignore[override]
        return 1


def test_what_only_starts_an_object_and_what_a_mixin_declares_is_no_field() -> None:
    run(Scaled(scale=2.0))
    run(Mixed())


class Plain(FedAvg):
    name: ClassVar[str] = "plain"
    mix = 0.1


def test_a_setting_without_a_type_is_told_apart_from_one_that_is_not_there() -> None:
    with pytest.raises(
        SettingError,
        match=r"no setting of .*Plain' called 'mix'.*; class Plain has mix without a type, .*mix: float = 0.1$",
    ):
        build("methods", {"name": f"{__name__}:Plain", "mix": 0.2}, path="method")
    for other in ("max", "client", "paper"):
        with pytest.raises(SettingError, match="there is no setting") as told:
            build("methods", {"name": f"{__name__}:Plain", other: 0.2}, path="method")
        assert "without a type" not in str(told.value)


@dataclass(frozen=True, kw_only=True)
class Unshared(dc.methods.Local):
    name: ClassVar[str] = "unshared"
    has_shared: ClassVar[bool] = True


def test_a_shared_model_without_its_hook_is_named_before_the_run(tmp_path: Path) -> None:
    said = "method: Unshared is no complete method: has_shared is true, and there is no hook shared$"
    with pytest.raises(SettingError, match=said):
        run(Unshared(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("decorator", "field"), [("@dataclass", "mix: float = 0.5"), ("@dataclass(frozen=True)", "mix: float")]
)
def test_a_decorator_that_does_not_go_with_the_class_above_is_told_how_to_write_it(
    decorator: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "from dataclasses import dataclass",
        "from descant.coupling import Penalty",
        "@dataclass(frozen=True)",
        "class Above(Penalty):",
        "    size: float = 1.0",
        decorator,
        "class Mine(Above):",
        f"    {field}",
    )
    (tmp_path / "undecided.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SettingError,
        match=r"cannot be imported: TypeError: .*: write @dataclass\(frozen=True, kw_only=True\) above it$",
    ):
        build("penalties", "undecided:Mine")


@pytest.mark.parametrize("kind", BASES)
def test_all_that_descant_brings_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were the users' own: names of its functions are no slips for each other."""
    monkeypatch.setattr("descant.hooks.of_descant", lambda cls: cls in BASES.values())
    for cls in CATALOG[kind].values():
        assert isinstance(cls, type)
        check_names.__wrapped__(cls, BASES[kind])
        check_declared("it", cls, BASES[kind])


@pytest.mark.parametrize("name", ["step_a", "personalized", "broadcasts", "explain"])
def test_a_function_whose_name_says_more_than_a_hooks_is_the_users_own(name: str) -> None:
    """It may be called by another class, by a script, or by a name that is put together."""
    run(given(**{name: lambda self: None}))
