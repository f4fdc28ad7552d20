"""Attackers that know the server's aggregator: the factor of ALIE and IPM by search, and the seam that they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import descant as dc
from descant import FederatedData, Task, simulate
from descant.aggregators import Aggregator, CenteredClipping, CoordinateMedian, Krum, Mean, TrimmedMean
from descant.attacks import ALIE, Attack, Defence, InnerProduct
from descant.attacks.searching import most_harmful
from descant.context import Context
from descant.errors import SettingError
from descant.experiment.declaration import Settings
from descant.mail import Mail
from descant.methods import FLAME, Ditto, FedAMP, FedAvg, LpProj, Method, Scaffold
from descant.trees import Tree
from tests.attacks.oracle import SEED, Vector, locally, shared

ATTACKERS, BENIGN = (1, 4), (0, 2, 3)
PLAIN = FedAvg(lr=0.1, steps=2, batch=None, weighted=False)
HOW: dict[str, Any] = {"seed": SEED, "mode": "vmap", "malicious": ATTACKERS}


def searched(harm: Callable[[float], float], first: float) -> float:
    """The search, written out: all that is tried, and the earliest of the best."""
    tried = [first] + [2.0**power for power in range(-4, 6)]
    best = max(tried, key=harm)
    for step in (0.5, 0.25, 0.125):
        best = max([best, best * 2**-step, best * 2**step], key=harm)
    return best


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=8), st.floats(0.01, 40))
def test_the_search_tries_what_it_says_and_takes_the_best(bends: list[float], first: float) -> None:
    def harm(x: float) -> float:
        return float(sum(b * np.sin(i * np.log2(x)) for i, b in enumerate(bends, 1)))

    tried: list[float] = []
    found = most_harmful(lambda x: tried.append(x) or harm(x), first)  # type: ignore[func-returns-value]
    assert len(tried) == 17 and found == searched(harm, first)
    assert harm(found) == max(map(harm, tried)) >= harm(first)


def test_harm_that_is_no_number_is_endless() -> None:
    assert most_harmful(lambda x: float("nan") if x == 8 else x, 0.1) == 8


def trimmed(rows: Vector) -> Vector:
    ordered: Vector = np.sort(rows, axis=0)[1:-1].mean(0)
    return ordered


def krum(rows: Vector) -> Vector:
    """f = 1 of 5: the row with the least sum of squared distances to its two nearest others."""
    off = ((rows[:, None] - rows) ** 2).sum(-1)
    chosen: Vector = rows[np.argmin([sum(sorted(off[i])[1:3]) for i in range(len(rows))])]
    return chosen


RULES: dict[str, tuple[Aggregator, Callable[[Vector], Vector]]] = {
    "mean": (Mean(), lambda rows: rows.mean(0)),
    "median": (CoordinateMedian(), lambda rows: np.median(rows, axis=0)),
    "trimmed": (TrimmedMean(f=1), trimmed),
    "krum": (Krum(f=1), krum),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("attack", [ALIE(z="search"), InnerProduct(epsilon="search")], ids=lambda a: a.name)
def test_a_round_of_fedavg_is_that_of_a_plain_loop(
    labelled: FederatedData, linear: Task, attack: Attack, rule: str
) -> None:
    """The factor is searched for against an aggregator in NumPy, and is never weaker than the paper's."""
    aggregator, combine = RULES[rule]
    w = linear.start().numpy()
    own = locally(w, labelled, 0.1, 2)
    benign = np.array([own[k] - w for k in BENIGN])
    paper = ALIE().papers(3, 2) if isinstance(attack, ALIE) else 0.1

    def combined(factor: float) -> Vector:
        sent = benign.mean(0) - factor * benign.std(0) if isinstance(attack, ALIE) else -factor * benign.mean(0)
        return combine(np.array([benign[0], sent, benign[1], benign[2], sent]))

    def harm(factor: float) -> float:
        return float(np.linalg.norm(combined(factor) - benign.mean(0)))

    factor = searched(harm, paper)
    done = simulate(linear, labelled, PLAIN, rounds=1, evaluate=1, aggregator=aggregator, attacks=attack, **HOW)
    np.testing.assert_allclose(shared(done), w + combined(factor), rtol=1e-9, atol=1e-12)
    assert harm(factor) >= harm(paper)
    if rule in ("mean", "median", "trimmed"):
        assert harm(factor) > 1.01 * harm(paper), "the paper's factor is not the most harmful here"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "method",
    [PLAIN, Scaffold(lr=0.1, steps=2), Ditto(steps=1, solver=PLAIN), LpProj(steps=2, dim=3), FLAME(steps=2)],
    ids=lambda method: method.name,
)
def test_to_be_asked_changes_nothing_on_the_server(labelled: FederatedData, linear: Task, method: Method) -> None:
    """Attackers that ask seven times and then send what they would have sent, to an aggregator with memory."""
    how = HOW | {"rounds": 3, "evaluate": 1, "aggregator": CenteredClipping(tau=0.1)}
    plain = simulate(linear, labelled, method, attacks=Asking(times=0), **how)
    asked = simulate(linear, labelled, method, attacks=Asking(times=7), **how)
    assert plain.clients.equals(asked.clients) and len(plain.rounds) == 3
    columns = [name for name in plain.rounds.columns if name != "seconds"]
    assert plain.rounds.select(columns).equals(asked.rounds.select(columns))


@dataclass(frozen=True, kw_only=True)
class Asking(Attack):
    """Attackers that send their messages times ten, and ask before what would come of it and of other factors."""

    name: ClassVar[str] = "asking"

    times: int = 1
    answers: list[Tree] = field(default_factory=list, repr=False, compare=False)

    def against(self, ctx: Context, state: Tree, mail: Mail, benign: Mail, defence: Defence) -> tuple[Tree, Mail]:
        def scaled(factor: float) -> Mail:
            return mail.moved({name: factor * way for name, way in mail.updates().items()})

        for i in range(self.times):
            self.answers.append(defence(scaled(10.0 + i)))
        return state, scaled(10.0)


def test_the_answer_is_what_the_server_then_combines(labelled: FederatedData, linear: Task) -> None:
    """With weights by examples, and a message that is dropped because it is not finite."""
    attack = Asking(times=1)
    done = simulate(linear, labelled, FedAvg(lr=0.1, steps=2), rounds=1, evaluate=1, attacks=attack, **HOW)
    told = attack.answers[0]["delta"].numpy()
    np.testing.assert_allclose(shared(done) - linear.start().numpy(), told, rtol=1e-9, atol=1e-12)

    @dataclass(frozen=True, kw_only=True)
    class Endless(Attack):
        name: ClassVar[str] = "endless"

        def against(
            self, ctx: Context, state: Tree, mail: Mail, benign: Mail, defence: Defence
        ) -> tuple[Tree, Mail]:
            sent = mail.with_leaves({"delta": torch.full_like(mail["delta"], torch.inf)})
            assert bool(defence(sent)["delta"].isfinite().all()), "it would be dropped"
            return state, sent

    assert simulate(linear, labelled, PLAIN, rounds=1, attacks=Endless(), **HOW).rounds["refused"].to_list() == [2]


def test_what_combines_by_itself_is_said(labelled: FederatedData, linear: Task) -> None:
    with pytest.raises(SettingError, match=r"'alie' searches against the run's aggregator.*give it a number"):
        simulate(linear, labelled, FedAMP(steps=1), rounds=1, attacks={"name": "alie", "z": "search"}, **HOW)
    with pytest.raises(SettingError, match="call its `against`"):
        ALIE(z="search").update(torch.zeros(2, 3), 1)
    for wrong in ({"z": "all"}, {"z": float("inf")}):
        with pytest.raises(SettingError, match=r"ALIE\.z = "):
            ALIE(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"attacks\.epsilon"):
        simulate(linear, labelled, PLAIN, rounds=1, attacks={"name": "ipm", "epsilon": "most"}, **HOW)


def test_a_search_is_recorded_and_resumed_as_such() -> None:
    attacks = [{"name": "alie", "z": "search"}, {"name": "ipm", "epsilon": "search"}]
    settings = dc.experiment.declaration.Settings.of({"rounds": 1, "attacks": attacks})
    assert settings.attacks == (ALIE(z="search"), InnerProduct(epsilon="search"))
    assert settings.plain()["attacks"] == attacks


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ({"name": "alie", "z": "serch"}, r"attacks\.z = 'serch': it must be a number or 'search' or nothing$"),
        ({"name": "ipm", "epsilon": "serch"}, r"attacks\.epsilon = 'serch': it must be .* or 'search'$"),
    ],
)
def test_a_misspelt_search_is_told_the_word(attack: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Settings.of({"rounds": 1, "attacks": attack})
