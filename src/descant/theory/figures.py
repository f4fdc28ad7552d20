"""The papers' theoretical figures: lines are closed forms, points are simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np

from descant.theory import ditto
from descant.theory.checks import fairness as fairness_checks
from descant.theory.checks import lpproj
from descant.theory.fairness import expected_loss_variance, realised_loss_variance
from descant.theory.flame import bias_spread
from descant.theory.montecarlo import generator
from descant.theory.rates import Theorem14, sampling_error

Chart = alt.HConcatChart
Point = dict[str, Any]
_SIZE = {"width": 330, "height": 240}


def _panel(
    title: str,
    lines: list[Point],
    points: list[Point],
    rules: list[Point],
    x: str,
    y: str,
    *,
    log_x: bool = True,
    log_y: bool = False,
    bars: bool = False,
) -> Any:
    """Lines, points (with bars from `low` to `high`) and named vertical rules."""
    across = alt.X("x:Q", title=x, scale=_scale(log_x, nice=False))
    up = alt.Y("y:Q", title=y, scale=_scale(log_y))
    # On the page a panel is as wide as its place: what the colours mean stands below, where there is room for it.
    colour = alt.Color("of:N", sort=None, legend=alt.Legend(title=None, orient="bottom", columns=3))
    layers = [_of(lines).mark_line().encode(across, up, colour)]
    if points:
        layers.append(_of(points).mark_point(filled=True).encode(across, up, colour))
    if bars:
        layers.append(_of(points).mark_rule().encode(across, alt.Y("low:Q", title=y), alt.Y2("high:Q"), colour))
    if rules:
        layers.append(_of(rules).mark_rule(strokeDash=[4, 4], color="grey").encode(across))
    for place, rule in enumerate(rules):  # one below the other: they may stand close
        named = _of([rule]).mark_text(align="left", dx=3, color="grey")
        layers.append(named.encode(across, y=alt.value(8 + 14 * place), text="name:N"))
    return alt.layer(*layers).properties(title=title, **_SIZE)


def _scale(log: bool, **more: Any) -> alt.Scale:
    return alt.Scale(type="log", **more) if log else alt.Scale(zero=False, **more)


def _of(values: list[Point]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values))


def _beside(title: str, panels: Iterable[Any]) -> Chart:
    beside: Chart = alt.hconcat(*panels).properties(title=title)
    return beside


def _curve(x: Iterable[float], y: Iterable[float], of: str) -> list[Point]:
    return [{"x": float(a), "y": float(b), "of": of} for a, b in zip(x, y, strict=True)]


def ditto_1(trials: int, seed: int) -> Chart:
    """Ditto, Figure 1: test error over lambda; the bars are the spread over devices, over the root of 8."""
    panels = []
    grid = np.geomspace(0.02, 50, 121)
    for setting, problem in ditto.FIGURE_1.items():
        v, estimates = problem.estimates(generator(seed, f"ditto figure 1 {setting}"), trials)
        points = []
        for lam in grid[::10]:
            errors = problem.squared_errors(v, estimates, float(lam))
            mean, bar = float(errors.mean()), float(errors.var(1).mean() / 8) ** 0.5
            points.append({"x": float(lam), "y": mean, "of": "simulated", "low": mean - bar, "high": mean + bar})
        rules = [{"x": problem.lambda_star, "name": "λ*"}, {"x": problem.fairest, "name": "fairest"}]
        if abs(problem.fairest / problem.lambda_star - 1) < 1e-6:
            rules = [{"x": problem.lambda_star, "name": "λ*, the fairest too"}]
        lines = _curve(grid, problem.error(grid), "closed form")
        panels.append(_panel(setting, lines, points, rules, "λ", "test error", bars=True))
    return _beside("Ditto, Figure 1: point estimation", panels)


def ditto_2(trials: int, seed: int) -> Chart:
    """Ditto, Figure 2: local, lambda* and global, over how related the devices are."""
    panels = []
    fine = np.geomspace(ditto.FIGURE_2_TAU[0], 1.0, 80)
    for setting, setup in ditto.FIGURE_2.items():
        lines: list[Point] = []
        points: list[Point] = []
        for tau in fine:
            problem = replace(setup, tau=float(tau))
            lines += [_row(problem.error(lam), tau, name) for name, lam in _choices(problem).items()]
        for tau in ditto.FIGURE_2_TAU:
            problem = replace(setup, tau=float(tau))
            v, estimates = problem.estimates(generator(seed, f"ditto figure 2 {setting} {tau:.3f}"), trials)
            for name, lam in _choices(problem).items():
                points.append(_row(float(problem.squared_errors(v, estimates, lam).mean()), tau, name))
        panels.append(_panel(setting, lines, points, [], "1 / τ", "test error", log_y=True))
    return _beside("Ditto, Figure 2: how related the devices are", panels)


def _choices(problem: ditto.DittoProblem) -> dict[str, float]:
    return {"local, λ = 0": 0.0, "Ditto, λ*": problem.lambda_star, "global, λ = 1000": 1000.0}


def _row(error: float, tau: float, name: str) -> Point:
    return {"x": 1 / float(tau), "y": error, "of": name}


def lpproj_1(trials: int, seed: int) -> Chart:
    """lp-proj, Figure 1: losses over lambda under same-value attacks, and closer around the threshold."""
    problem = lpproj.FIGURE_1
    names = {"local": "local", "pfedme": "pFedMe and Ditto", "lp-proj": "lp-proj"}
    cells = [(method, float(lam)) for method in ("pfedme", "lp-proj") for lam in np.geomspace(1e-3, 10, 9)]
    drawn = lpproj.simulate("same-value", cells, min(trials, 500), seed)[1]
    points = [{"x": lam, "y": float(values.mean()), "of": names[key]} for (key, lam), values in drawn.items()]
    rules = [{"x": problem.lambda_star, "name": "λ*₁"}, {"x": problem.threshold, "name": "threshold"}]
    panels = []
    for title, grid, shown in (
        ("all λ", np.geomspace(1e-4, 10, 120), points),
        ("around the threshold", np.geomspace(2e-5, 1.5e-3, 120), []),
    ):
        lines = [p for key, name in names.items() for p in _curve(grid, problem.loss(key, grid), name)]
        panels.append(_panel(title, lines, shown, rules, "λ", "loss of the benign clients", log_y=bool(shown)))
    return _beside("lp-proj, Figure 1: same-value attacks by 20 of 100 clients", panels)


def fairness(trials: int, seed: int) -> Chart:
    """lp-proj, Theorem 32: the variance of losses over clients, in its two readings."""
    S, grid = fairness_checks.covariance(), np.geomspace(0.01, 2, 80)
    N, b, r, d = fairness_checks.N, fairness_checks.B, fairness_checks.R, fairness_checks.D
    expected: list[Point] = []
    realised: list[Point] = []
    for method, tied in fairness_checks.TIED.items():
        part = S[:tied, :tied]
        expected += _curve(grid, expected_loss_variance(part, N, b, grid), method)
        realised += _curve(grid, realised_loss_variance(part, N, b, grid, r, d - tied), method)
    rules = [{"x": fairness_checks.best(), "name": "λ of the least loss"}]
    panels = [
        _panel(name, lines, [], rules, "λ", "variance over clients")
        for name, lines in {
            "losses in expectation over the training noise": expected,
            "losses of the models at hand": realised,
        }.items()
    ]
    return _beside("lp-proj, Proposition 18: which method is fair", panels)


def theorem_14(trials: int, seed: int) -> Chart:
    """lp-proj, Theorem 14: the error of the reference under client sampling, and 1/T."""
    schedule = Theorem14(mu_F=0.5, beta=7.0)
    error = sampling_error(schedule, 100_000, 8.0, 2.0, N=10, S=3)
    rounds = np.unique(np.geomspace(1, 100_000, 120).astype(int))
    lines = _curve(rounds, error[rounds], "E ||w_T - w*||²")
    lines += _curve(rounds[rounds > 30], error[-1] * 100_000 / rounds[rounds > 30], "1 / T")
    rules = [{"x": schedule.zeta, "name": "ζ"}]
    panel = _panel("3 of 10 clients a round", lines, [], rules, "rounds T", "squared error", log_y=True)
    return _beside("lp-proj, Theorem 14: O(1/T)", [panel])


def flame_3(trials: int, seed: int) -> Chart:
    """FLAME, Proposition 3: what varies of the losses over clients, over q, beside q = 1 (pFedMe and Ditto)."""
    theta = generator(seed, "flame figure").normal(1.0, 1.0, (200, 4))
    draws = {
        "equal norms": theta / np.linalg.norm(theta, axis=1, keepdims=True),
        "N(1, I)": theta,
        "θ = 3 and 1": np.array([[3.0], [1.0]]),
    }
    q = np.linspace(0.05, 1.2, 47)
    lines = []
    for name, models in draws.items():
        spread = bias_spread(models)
        lines += _curve(q, spread(q) / max(spread(1.2), spread(0.05)), name)
    rules = [{"x": 1.0, "name": "pFedMe, Ditto"}]
    panel = _panel("true models", lines, [], rules, "q", "variance, of its largest", log_x=False)
    return _beside("FLAME, Proposition 3: which q is fair", [panel])


FIGURES: dict[str, Callable[[int, int], Chart]] = {
    "ditto-figure-1": ditto_1,
    "ditto-figure-2": ditto_2,
    "lp-proj-figure-1": lpproj_1,
    "lp-proj-fairness": fairness,
    "lp-proj-theorem-14": theorem_14,
    "flame-proposition-3": flame_3,
}
