"""What a user's code mentions by name belongs to it: a run of before an edit is not taken for one of now."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from descant.experiment.identity import code
from descant.experiment.mentioned import source

METHOD = """
from dataclasses import dataclass, field
from functools import cache, partial, wraps

import torch
from descant.methods import Ditto
{imports}

{module}

@dataclass(frozen=True, kw_only=True)
class Mine(Ditto):
    name = "mine"
    {body}

    {decorator}
    def step(self, v, grad, w):
        return super().step(v, grad, {step})
"""
Make = Callable[..., ModuleType]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Write modules, by name, and import them anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def made(last: str, **others: str) -> ModuleType:
        for name, text in {**others, "own_code": last}.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for name in [each for each in sys.modules if each.split(".")[0] in ("own_code", "aids", "far", "kit")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("own_code")

    return made


def method(step: str = "w", module: str = "", imports: str = "", body: str = "", decorator: str = "") -> str:
    return METHOD.format(step=step, module=module, imports=imports, body=body, decorator=decorator)


def told(make: Make, last: str, **others: str) -> str:
    return json.dumps(code(make(last, **others).Mine))


TIE = "def tie(v, w):\n    return {} * w\n"
CHAIN = "def tie(v, w):\n    return half(w)\n\ndef half(w):\n    return {} * w\n"
BASE = (
    "@dataclass(frozen=True, kw_only=True)\nclass Base(Ditto):\n    def shift(self, w):\n        return tie(w, w)\n"
)
CYCLE = (
    "def odd(w, n):\n    return even(w, n - 1)\n\ndef even(w, n):\n    return {} * w if not n else odd(w, n - 1)\n"
)
DECORATOR = """
def smooth(function):
    {wraps}
    def wrapper(self, v, grad, w):
        return {{}} * function(self, v, grad, w)
    return wrapper
"""
HELPERS: dict[str, dict[str, str]] = {
    "function": {"step": "tie(v, w)", "module": TIE},
    "function in a lambda": {"step": "(lambda: [tie(v, w) for _ in (1,)])()[0]", "module": TIE},
    "helper of a helper": {"step": "tie(v, w)", "module": CHAIN},
    "cycle": {"step": "odd(w, 3)", "module": CYCLE},
    "constant": {"step": "SCALE * w", "module": "SCALE = {}\n"},
    "constant in a list": {"step": "SCALES['a'][1] * w", "module": "SCALES = {{'a': (torch, {}, {{2, 3}})}}\n"},
    "set": {"step": "len(SCALES) * w", "module": "SCALES = {{3, {}, 'a', 'b', 'c'}}\n"},
    "helper's constant": {"step": "tie(v, w)", "module": "SCALE = {}\n" + TIE.format("SCALE")},
    "helper's default": {"step": "tie(v, w)", "module": "S = {}\ndef tie(v, w, s=S):\n    return s * w\n"},
    "class": {
        "step": "Tie.of(w)",
        "module": "class Tie:\n    @staticmethod\n    def of(w):\n        return {} * w\n",
    },
    "lambda": {"step": "tie(w)", "module": "tie = lambda w: {} * w\n"},
    "partial": {"step": "tie(w=w)", "module": "tie = partial(lambda s, w: s * w, {})\n"},
    "cached": {"step": "tie() * w", "module": "@cache\ndef tie():\n    return {}\n"},
    "wrapped": {"step": "tie(v, w)", "module": "@torch.no_grad()\n" + TIE},
    "table": {"step": "TIES['a'](v, w)", "module": TIE + "TIES = {{'a': tie}}\n"},
    "closure": {"step": "tie(w)", "module": "def of(s):\n    return lambda w: s * w\ntie = of({})\n"},
    "held": {
        "step": "tie(v, w)",
        "module": TIE.replace("tie", "f") + "tie = (lambda f: lambda v, w: f(v, w))(f)\n",
    },
    "default": {"step": "self.of(w)", "module": "S = {}\n", "body": "def of(self, w, s=S): return s * w"},
    "attribute of the class": {"step": "self.s * w", "module": "S = {}\n", "body": "s = S"},
    "function in the class": {"step": "self.tie(w)", "module": TIE, "body": "tie = tie"},
    "property": {"step": "self.s * w", "module": "S = {}\n", "body": "s = property(lambda self: S)"},
    "inner class": {"step": "self.I.f(w)", "module": TIE, "body": "class I:\n        f = lambda w: tie(w, w)"},
    "decorator": {"module": DECORATOR.format(wraps="@wraps(function)"), "decorator": "@smooth"},
    "decorator in the open": {"module": DECORATOR.format(wraps=""), "decorator": "@smooth"},
    "wrapper": {
        "step": "two(self, v, grad, w)",
        "module": DECORATOR.format(wraps="@wraps(function)") + "two = smooth(lambda self, v, grad, w: w)\n",
    },
}


@pytest.mark.parametrize("parts", HELPERS.values(), ids=HELPERS)
def test_what_a_class_mentions_belongs_to_its_code(parts: dict[str, str], make: Make) -> None:
    once, twice, again = (
        told(make, method(**parts | {"module": parts["module"].format(times)})) for times in (1, 7, 1)
    )
    assert once == again != twice


@pytest.mark.parametrize("name", ["function", "constant", "helper of a helper"])
def test_and_so_does_what_its_base_class_mentions(name: str, make: Make) -> None:
    def of(times: int) -> str:
        module = (CHAIN if name == "helper of a helper" else TIE).format("SCALE" if name == "constant" else times)
        text = method(step="self.shift(w)", module=f"SCALE = {times}\n{module}\n{BASE}")
        return told(make, text.replace("Mine(Ditto)", "Mine(Base)"))

    assert of(1) == of(1) != of(7)


@pytest.mark.parametrize(
    ("imports", "step"),
    [
        ("from aids import tie", "tie(v, w)"),
        ("from aids import *", "tie(v, w)"),
        ("import aids", "aids.tie(v, w)"),
        ("import aids as far", "far.tie(v, w)"),
        ("from aids import SCALE", "SCALE * w"),
        ("import aids", "aids.SCALE * w"),
        ("import aids", "aids.Tie().of(w)"),
    ],
)
def test_helpers_in_a_module_of_ones_own_belong_to_it(imports: str, step: str, make: Make) -> None:
    def of(times: int, beside: int = 1) -> str:
        aids = f"import far\nSCALE = {times}\ndef tie(v, w):\n    return far.half(w)\n" + (
            f"class Tie:\n    def of(self, w):\n        return {times} * w\n\ndef unused(): return {beside}\n"
        )
        far = f"def half(w):\n    return {times} * w\n"
        return told(make, method(step=step, imports=imports), far=far, aids=aids)

    assert of(1) == of(1, beside=5) != of(7)


def test_a_module_in_a_package_of_ones_own_is_followed_with_and_without_an_init(make: Make) -> None:
    def of(times: int, **init: str) -> str:
        text = method(step="kit.aids.tie(v, w)", imports="import kit.aids")
        return told(make, text, **init, kit__aids=TIE.format(times))

    assert of(1) == of(1) != of(7)
    assert of(1, kit____init__="") == of(1) != of(7)


def test_two_helpers_of_one_name_are_not_taken_for_one_another(make: Make) -> None:
    def of(one: int, two: int) -> str:
        text = method(step="tie(v, aids.tie(v, w))", imports="import aids", module=TIE.format(one))
        return told(make, text, aids=TIE.format(two))

    assert len({of(1, 1), of(1, 7), of(7, 1), of(7, 7)}) == 4


def test_code_that_mentions_nothing_has_the_fingerprint_of_runs_from_before(make: Make) -> None:
    plain = make(
        method(
            step="torch.clone(w)",
            decorator="@torch.no_grad()",
            body="tags: list = field(default_factory=lambda: [])",
        )
    )
    own = [
        cls for cls in plain.Mine.__mro__ if cls.__module__.split(".")[0] not in ("torch", "descant", "builtins")
    ]
    assert code(plain.Mine) == ["Mine", [source(cls) for cls in own]]
    text = "def loss(o, t, scale=1.0):\n    return scale * (o - t)\n"
    assert code(make(text).loss) == ["loss", source(sys.modules["own_code"].loss), ["1.0"], []]
    held = make(
        "def of(f, n):\n    def loss(o, t): return n * f(o)\n    return loss\nloss = of(lambda o: o, 3)\n"
    ).loss
    assert len(code(held)) == 4 and code(held)[3][0][0] == "<lambda>" and code(held)[3][1] == "3"


def test_what_nothing_mentions_and_comments_change_nothing(make: Make) -> None:
    def of(comment: str = "", module: str = "") -> str:
        return told(make, method(step="tie(v, w)", module=f"{module}\n{comment}\n" + TIE.format(3)))

    same = of()
    assert of(comment="# the tie") == of(module="def other():\n    return 1\nOTHER = 3\n") == same
    assert of(module="self = v = grad = step = 5\n") == same, "which are names in the function alone, or attributes"
    assert of(module="def step(): pass\n") == same


def test_objects_libraries_and_what_code_sets_itself_are_not_followed(make: Make) -> None:
    step = "json.dumps(__file__) and count() and pytest.approx(mean(OBJECT)) and hush and SEEN and w"
    imports = "import json, pytest\nfrom descant.methods import hush\nfrom statistics import mean"
    count = "def count():\n    global CALLS\n    CALLS += 1\n    return CALLS\n"

    def of(calls: int) -> str:
        module = f"OBJECT = object()\nCALLS = {calls}\nSEEN = {{}}\n{count}"
        return told(make, method(step=step, imports=imports, module=module))

    assert of(0) == of(1)
    own: Any = sys.modules["own_code"]
    before = code(own.Mine)
    assert [itself[0] for itself, _ in before[2] if itself] == ["count"]
    own.SEEN[3] = own.OBJECT
    assert code(own.Mine) == before


def test_functions_that_hold_each_other_have_an_end() -> None:
    def loss(n: int) -> int:
        return other(n - 1) if n else 0

    def other(n: int) -> int:
        return loss(n)

    assert code(loss) == code(loss)


def test_a_constant_is_looked_at_anew_and_a_function_that_a_notebook_changed_in_its_place(make: Make) -> None:
    own: Any = make(method(step="SCALE * tie(v, w)", module="SCALE = 1\n" + TIE.format(3)))
    first = code(own.Mine)
    own.SCALE = 2
    second = code(own.Mine)
    other: Any = make(method(step="SCALE * tie(v, w)", module="SCALE = 1\nEXTRA = 1\n" + TIE.format(4)))
    own.tie.__code__ = other.tie.__code__
    third = code(own.Mine)
    assert first != second != third


def test_the_order_in_which_names_are_followed_is_the_same_in_every_process(make: Make, tmp_path: Path) -> None:
    names = "abcdefgh"
    module = "".join(f"def {n}(w):\n    return {n.upper()} * w\n{n.upper()} = {{'x', 'y', {n!r}}}\n" for n in names)
    make(method(step="+".join(f"{n}(w)" for n in names), module=module))
    ask = "import own_code; from descant.experiment.identity import code; print(code(own_code.Mine))"
    found = {
        subprocess.run(
            [sys.executable, "-c", ask],
            env={"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(2)
    }
    assert len(found) == 1


NOTED = """
MEMO, LOG, SEEN = {}, [], set()

def remember(w):
    MEMO[len(MEMO)] = 1.0
    LOG.append(2.0)
    SEEN.update({3.0})
    return w
"""


@pytest.mark.parametrize("apart", [False, True])
def test_what_code_notes_in_a_module_while_it_runs_is_no_part_of_it(apart: bool, make: Make) -> None:
    """Else a comparison that is called again would run all of its cells anew."""
    if apart:
        step = "aids.remember(w) if not (aids.MEMO or aids.LOG or aids.SEEN) else w"
        own: Any = make(method(step=step, imports="import aids"), aids=NOTED)
        helpers = sys.modules["aids"]
    else:
        own = make(method(step="remember(w) if not (MEMO or LOG or SEEN) else w", module=NOTED))
        helpers = own
    before = code(own.Mine)
    helpers.remember(None)
    assert helpers.MEMO and helpers.LOG and helpers.SEEN
    assert code(own.Mine) == before


def test_where_a_file_lies_and_what_a_number_shows_of_itself_are_no_part_of_code(make: Make) -> None:
    odd = "class Odd(int):\n    def __repr__(self):\n        return {}\nODD = Odd({})\n"

    def of(place: str = "/here/data", shown: str = "'x'", number: int = 3) -> str:
        module = f"ROOT = {place!r}\n" + odd.format(shown, number)
        own: Any = make(method(step="len(ROOT) * ODD * w", module=module))
        return json.dumps([each for _, each in code(own.Mine)[2]])

    assert of() == of(place="/there/data")
    assert of(place="data/a") != of(place="data/b")
    assert of() != of(number=4)
    own: Any = make(method(step="ODD * w", module=odd.format("str(id(self))", 3)))
    before = code(own.Mine)
    own.ODD = own.Odd(3)
    assert code(own.Mine) == before


def test_many_numbers_and_long_texts_are_told_in_short(make: Make) -> None:
    def of(last: int) -> str:
        module = f"MANY = (*range(10_000), {last})\nTEXT = 'a' * 10_000 + '{last}'\n"
        return told(make, method(step="len(MANY) * len(TEXT) * w", module=module))

    assert of(1) == of(1) != of(2)
    assert len(of(1)) < 4_000


def test_modules_and_classes_that_answer_oddly_are_passed_over(make: Make) -> None:
    module = "Odd = type('Odd', (), {'__module__': 5})\n"
    own: Any = make(method(step="Odd and aids.x and w", module=module, imports="import aids"), aids="x = 1\n")

    class Raises(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    sys.modules["aids"] = own.aids = Raises("aids")
    code(own.Mine)
