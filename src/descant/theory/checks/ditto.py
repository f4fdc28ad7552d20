"""Ditto's section 3.3, checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from descant.theory.checks.findings import Agreement, Claim, Finding, simulated
from descant.theory.ditto import FIGURE_1, FIGURE_2, DittoProblem
from descant.theory.montecarlo import Estimate, generator
from descant.theory.regression import FederatedRegression

PAPER = "Ditto"
REGRESSION = DittoProblem(K=10, K_a=3, n=12, b=2.5, d=6)
PROBLEMS = {
    "point estimation, clean": FIGURE_1["clean"],
    "point estimation, attacked": FIGURE_1["attacked"],
    "linear regression, attacked": REGRESSION,
}
_GRID = np.geomspace(1e-3, 1e3, 4001)
_MIXTURE_TRIALS = 1500  # of the mixture over who is malicious, 6,435 ways in Figure 1: few would decide nothing
_AT_ONCE = 200


def losses(trials: int, seed: int) -> list[Finding]:
    """Error and variance of every kind of problem, at lambda = 0, lambda* and 1000."""
    found: list[Finding] = []
    for name, problem in PROBLEMS.items():
        v, estimates = problem.estimates(generator(seed, name), trials)
        for label, lam in {"0": 0.0, "lambda*": problem.lambda_star, "1000": 1000.0}.items():
            errors = problem.squared_errors(v, estimates, lam)
            where = f"3.3, {name}"
            found += [
                simulated(PAPER, where, f"test error at {label}", problem.error(lam), errors.mean(1)),
                simulated(PAPER, where, f"variance over devices at {label}", problem.variance(lam), errors.var(1)),
            ]
    return [*found, _as_lp_proj(REGRESSION)]


def _as_lp_proj(p: DittoProblem) -> Agreement:
    """lp-proj's lambda*_1, with the heterogeneity that models drawn as here have in the mean."""
    K_b = p.K - p.K_a
    Sigma = p.tau**2 * (1 - 2 / p.K + K_b / p.K**2)
    other = FederatedRegression(p.n, p.K, p.K_a, p.d, 0, p.b, p.sigma, Sigma, p.tau_a**2 + p.r)
    return Agreement(
        PAPER,
        "3.3, linear regression, attacked",
        "lambda*, as lp-proj's lambda*_1",
        p.lambda_star,
        other.lambda_star,
    )


def statements(trials: int, seed: int) -> list[Finding]:
    found: list[Finding] = []
    for name, problem in PROBLEMS.items():
        best, fairest = problem.lambda_star, problem.fairest
        saved = 1 - problem.variance(fairest) / problem.variance(best)
        least = float(_GRID[problem.error(_GRID).argmin()])
        found += [
            Claim(
                PAPER,
                f"3.3, {name}",
                "lambda* has the least error of all lambda",
                bool((problem.error(_GRID) >= problem.error(best) * (1 - 1e-12)).all()),
                f"lambda* {best:.4g}, least on a grid at {least:.4g}",
            ),
            Claim(
                PAPER,
                f"3.3, {name}",
                "lambda* is the fairest of all lambda",
                bool((problem.variance(_GRID) >= problem.variance(best) * (1 - 1e-12)).all()),
                f"lambda* {best:.4g} with variance {problem.variance(best):.5g}, the fairest {fairest:.4g} with "
                f"{problem.variance(fairest):.5g} ({saved:.1%} less)",
                repeats="3.3, point estimation, attacked" if problem is REGRESSION else None,
            ),
        ]
    for setting, problem in FIGURE_1.items():
        found.append(_optimal(setting, problem, _MIXTURE_TRIALS, seed))
    found.append(_related(FIGURE_2["clean"]))
    return found


def _optimal(setting: str, problem: DittoProblem, trials: int, seed: int) -> Claim:
    """Whether any estimator beats Ditto at lambda*: the posterior mean is the best there is."""
    v, estimates = problem.estimates(generator(seed, f"bayes {setting}"), trials)
    parts = [problem.bayes(estimates[i : i + _AT_ONCE, :, 0]) for i in range(0, trials, _AT_ONCE)]
    bayes = (np.concatenate(parts) - v[:, 0, 0]) ** 2
    ditto = problem.squared_errors(v, estimates, problem.lambda_star)[:, 0]
    gain = Estimate.of(ditto - bayes)
    equal = float(np.abs(ditto - bayes).max()) < 1e-12
    numbers = f"errors {ditto.mean():.5g} and {bayes.mean():.5g} of the posterior mean"
    if not equal:
        numbers += f", which does not know who is malicious: {gain.mean:.2g} ± {gain.se:.1g} less, "
        numbers += f"or {gain.mean / ditto.mean():.0%}"
    return Claim(
        PAPER,
        f"Figure 1, {setting}",
        "lambda* is optimal among any possible federated estimation algorithms",
        equal or gain.mean <= 4 * gain.se,
        numbers,
    )


def _related(problem: DittoProblem) -> Claim:
    related, unrelated = replace(problem, tau=0.01), replace(problem, tau=1.0)
    ends = {name: (p.error(0.0), p.error(np.inf)) for name, p in (("r", related), ("u", unrelated))}
    best = all(p.error(p.lambda_star) < min(p.error(0.0), p.error(np.inf)) for p in (related, unrelated))
    return Claim(
        PAPER,
        "Figure 2",
        "unrelated devices: local beats global; related: global beats local; lambda* beats both",
        best and ends["u"][0] < ends["u"][1] and ends["r"][1] < ends["r"][0],
        f"tau = 1: local {ends['u'][0]:.4g}, global {ends['u'][1]:.4g}; "
        f"tau = 0.01: local {ends['r'][0]:.4g}, global {ends['r'][1]:.4g}",
    )
