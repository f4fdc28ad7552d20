"""Settings trees and files that hypothesis spoils: refused by name, or a run that could begin."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from descant.experiment.declaration import declared
from descant.experiment.settings import RunSettings
from tests.bad_input.calling import descant, refused, without_training

TREE: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 3, "samples": 12, "dim": 4, "classes": 3},
    "model": {"name": "mlp", "hidden": [3]},
    "method": {"name": "ditto", "lam": [0.1, 1.0], "steps": 1, "solver": {"name": "fedprox", "mu": 0.1}},
    "aggregator": {"name": "geometric-median", "cap": 5},
    "codec": {"name": "top-k", "share": 0.5},
    "attacks": [{"name": "sign-flip", "tau": 2.0}],
    "malicious": 1,
    "evaluate": {"every": 1, "parts": ["train", "test"]},
    "cohort": 2,
    "rounds": 1,
    "seed": 0,
}

# Nothing large that is allowed: a million clients would be made.
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(min_value=2**64),
    st.integers(max_value=-(2**64)),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(max_size=4),
)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def paths(tree: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a tree."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path for key, value in inside for path in ((*above, key), *paths(value, (*above, key)))]


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    """A tree with a few things changed, added or taken away, and the settings in which that was."""
    tree, where = deepcopy(TREE), set()
    for _ in range(draw(st.integers(1, 2))):
        *above, last = draw(st.sampled_from(paths(tree)))
        inner: Any = tree
        for key in above:
            inner = inner[key]
        match draw(st.sampled_from(["change", "change", "change", "add", "drop"])):
            case "change":
                inner[last] = draw(junk)
            case "add" if isinstance(inner, dict):
                last = draw(st.text(max_size=6)) if above else last
                inner[last] = draw(junk)
            case _:
                del inner[last]
        where.add(str(above[0] if above else last))
    return tree, where


def check(content: bytes, named: set[str]) -> None:
    with TemporaryDirectory() as folder, without_training():
        (Path(folder) / "run.yaml").write_bytes(content)
        done = descant("run", "run.yaml", "-q", cwd=Path(folder))
    if done.status != 0:  # what is left may be good settings
        refused(done, "run.yaml", "client '", *named)


def check_tree(case: tuple[dict[str, Any], set[str]]) -> None:
    tree, where = case
    try:
        content = yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):
        return  # a number of too many digits, say
    # A cohort, a model, a codec and who attacks must fit what else was changed.
    check(content, where | {"cohort", "malicious", "attacks", "labels reach", "method", "model", "codec"})


@given(spoiled())
def test_a_spoiled_tree_is_refused_by_name_or_could_begin(case: tuple[dict[str, Any], set[str]]) -> None:
    check_tree(case)


@pytest.mark.slow
@given(spoiled())
@settings(max_examples=1000)
def test_many_spoiled_trees_are_refused_by_name_or_could_begin(case: tuple[dict[str, Any], set[str]]) -> None:
    check_tree(case)


def check_text(content: bytes) -> None:
    check(content, {"setting", *declared(RunSettings)})


YAML = st.text("abr:-[]{}&*!|>%@`\"'#,.?\\\n\t 019éñ\u2028\U0001f600\x00\x85", max_size=60)


@given(YAML.map(lambda text: text.encode()) | st.binary(max_size=40))
def test_a_file_of_junk_is_refused_by_name(content: bytes) -> None:
    check_text(content)


@pytest.mark.slow
@given(YAML.map(lambda text: text.encode()) | st.binary(max_size=80))
@settings(max_examples=1000)
def test_many_files_of_junk_are_refused_by_name(content: bytes) -> None:
    check_text(content)


def lines(draw: Any, text: str) -> str:
    cut = draw(st.integers(0, len(text)))
    return text[:cut] + draw(YAML) + text[draw(st.integers(cut, len(text))) :]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=500)
def test_a_good_file_with_junk_in_it_is_refused_by_name_or_could_begin(data: st.DataObject) -> None:
    text = lines(data.draw, yaml.safe_dump(TREE))
    check_text(text.encode())
