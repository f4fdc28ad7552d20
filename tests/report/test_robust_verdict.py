"""The sentence of a table of robustness compares methods over the seeds that they have in common."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

import descant as dc
from descant.experiment.attackgrid import Place
from descant.experiment.outcomes import Outcome, worst_cases
from descant.methods import FedAvg
from descant.report.robust_verdict import Contest, verdict

Figures = dict[str, dict[str, list[float | None]]]  # method -> attack -> a figure a seed; None where it is missing


def contest(figures: Figures, alone: frozenset[str] = frozenset(), better: bool = True) -> Contest:
    """Methods under attacks by a fifth of the clients; a figure that is not a number is a collapse."""
    found, by_seed = [], {}
    for method, attacks in figures.items():
        for attack, values in attacks.items():
            there = {str(seed): value for seed, value in enumerate(values) if value is not None}
            by_seed[method, attack] = there
            mean = sum(there.values()) / len(there)
            gone = (3,) if mean != mean else ()
            numbers = dict.fromkeys(("spread", "low", "high", "variance", "round"), 0.0)
            place = Place(method, attack, 0.2)
            found.append(
                Outcome(place, len(there), 2, gone, mean=mean, mute=method in alone, **numbers)  # type: ignore[arg-type]
            )
    worst = {method: outcome for (method, _), outcome in worst_cases(found, better).items()}
    return Contest(0.2, worst, by_seed, alone, better)


def test_with_the_same_seeds_the_best_mean_of_worst_cases_wins() -> None:
    said = verdict(
        contest({"A": {"flip": [0.8, 0.6], "noise": [0.9, 0.9]}, "B": {"flip": [0.9, 0.9], "noise": [0.5, 0.5]}})
    )
    assert said == "With 20 % of attackers A has the best worst case, 0.700 under flip."


@pytest.mark.parametrize("better", [True, False])
def test_a_method_that_lacks_a_hard_seed_is_not_called_the_best(better: bool) -> None:
    sign = 1.0 if better else -1.0
    figures: Figures = {
        "A": {"flip": [0.8 * sign, 0.9 * sign, 0.2 * sign], "noise": [0.95 * sign] * 3},
        "B": {"flip": [0.7 * sign, 0.78 * sign, None], "noise": [0.95 * sign] * 3},  # the better mean: 0.74 to 0.63
    }
    said = verdict(contest(figures, better=better))
    assert said.startswith("With 20 % of attackers A has the best worst case over common seeds, 0.1100 ")
    assert f"{'above' if better else 'below'} B (95 % interval " in said
    assert "paired over 2 seeds, ahead in 2 of 2)" in said
    assert said.endswith("The methods do not have the same seeds there.")


def test_an_attack_that_one_method_was_not_held_against_says_nothing_of_the_other() -> None:
    figures: Figures = {"A": {"flip": [0.8, 0.8], "noise": [0.1, 0.1]}, "B": {"flip": [0.7, 0.7]}}
    said = verdict(contest(figures))
    assert "A has the best worst case over common attacks and seeds, 0.1000 above B" in said
    assert said.endswith("The methods do not have the same attacks and seeds there.")


def test_one_seed_without_a_figure_leaves_the_others_under_that_attack_in_the_worst_case() -> None:
    figures: Figures = {
        "A": {"flip": [0.9, 0.9, 0.9], "noise": [nan, 0.1, 0.1]},
        "B": {"flip": [0.8, 0.8, 0.8, 0.8], "noise": [0.7, 0.7, 0.7, 0.7]},
    }
    found = contest(figures)
    standing = {method: replace(outcome, collapsed=()) for method, outcome in found.worst.items()}
    assert "B has the best worst case" in verdict(replace(found, worst=standing))


def test_who_is_level_with_the_best_and_behind_another_is_not_called_the_best() -> None:
    """B has what A has over the seeds that both have, and C is ahead of B over all."""
    of = {"A": [0.8, 0.8, None], "B": [0.8, 0.8, 0.1], "C": [0.7, 0.7, 0.9]}
    said = verdict(contest({method: {"flip": values} for method, values in of.items()}))
    assert "A has the best worst case over common seeds" in said and "'A' and" not in said and "A and B" not in said


def test_where_an_attack_lacks_a_seed_of_all_methods_the_sentence_says_so() -> None:
    one: dict[str, list[float | None]] = {"flip": [0.8, 0.7, None], "noise": [0.9, 0.9, 0.9]}
    said = verdict(contest({"A": one, "B": {"flip": [0.6, 0.6, None], "noise": [0.9, 0.9, 0.9]}}))
    assert said.endswith("Not all attacks have the same seeds there.")


def test_without_a_common_seed_nobody_is_called_the_best() -> None:
    figures: Figures = {"A": {"flip": [0.8, None]}, "B": {"flip": [None, 0.7]}}
    said = verdict(contest(figures))
    assert said.endswith("no seed is common to two methods under all attacks, so that they cannot be compared.")
    figures["C"] = {"flip": [0.9, None]}
    said = verdict(contest(figures))
    assert "C has the best worst case over common seeds, 0.1000 above A (with one seed, which cannot say" in said
    assert "; no seed is common to C and B." in said


def test_methods_in_a_circle_have_no_best() -> None:
    figures: Figures = {
        "A": {"flip": [0.9, None, 0.1]},
        "B": {"flip": [0.8, 0.8, None]},
        "C": {"flip": [None, 0.7, 0.2]},
    }
    assert "over common seeds nobody's worst case is ahead of all others'" in verdict(contest(figures))


def test_collapses_and_what_attackers_cannot_reach_are_told_beside() -> None:
    figures: Figures = {
        "A": {"flip": [0.8, 0.8]},
        "B": {"flip": [0.8, None]},
        "C": {"flip": [nan, nan]},
        "Alone": {"flip": [0.85, None]},
    }
    said = verdict(contest(figures, frozenset({"Alone"})))
    assert said == (
        "With 20 % of attackers A and B have the same best worst case over common seeds; C collapses (Alone is "
        "0.0500 above A over common seeds, out of their reach). The methods do not have the same seeds there."
    )


def test_runs_that_are_missing_are_left_out_of_the_other_method_too() -> None:
    data = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
    methods = {"Slow": FedAvg(steps=1, lr=0.01), "Fast": FedAvg(steps=5, lr=0.1)}
    task = dc.Task(dc.models.linear(data))
    found = dc.robustness(
        task, data, methods, attacks=["sign-flip"], fractions=[0.2], seeds=3, rounds=2, mode="vmap"
    )
    assert "common seeds" not in found.verdict()
    place = Place("Slow", "sign-flip", 0.2)
    fewer = dc.Robustness(found.runs | {place: found.runs[place][1:]})
    assert "best worst case over common seeds" in fewer.verdict()
