"""FLAME's linear problem and Lemma 1, checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from descant.theory import printed, quadratics
from descant.theory.checks.findings import Agreement, Claim, Finding, against, simulated
from descant.theory.flame import OneRound, bias_spread, lemma_1_band
from descant.theory.montecarlo import Array, generator, mix
from descant.theory.regression import Attack

PAPER = "FLAME"
ATTACKS: tuple[Attack, ...] = ("same-value", "sign-flip", "gaussian")
Q = 0.6
_GAINS = (0.3, 0.6, 0.9)  # values of q at which Proposition 3 is tried


def problem(seed: int) -> OneRound:
    theta = generator(seed, "flame models").normal(0.7, 1.0, (8, 5))
    return OneRound(theta, m_a=3, N=10, b=1.3, sigma=1.0, lam=0.8, gamma=1.5)


def _simulated(p: OneRound, q: float, attack: Attack, trials: int, rng: np.random.Generator) -> dict[str, Array]:
    """The benign clients' average losses of the first round, of the global and the personal models."""
    m, d = p.theta.shape
    m_b = m - p.m_a
    estimates = p.theta + p.r**0.5 * rng.standard_normal((trials, m, d))
    u = q * estimates
    strength = p.gamma * rng.standard_normal((trials, p.m_a, 1))
    match attack:
        case "same-value":
            u[:, m_b:] = strength
        case "sign-flip":
            u[:, m_b:] *= -abs(strength)
        case "gaussian":
            u[:, m_b:] = p.gamma * rng.standard_normal((trials, p.m_a, d))
    w = u.mean(1, keepdims=True)
    a, c = mix(p.lam, p.b)
    models = {"global": w, "personal": a * estimates[:, :m_b] + c * w}
    return {
        name: p.sigma**2 / 2 + p.b / 2 * ((x - p.theta[:m_b]) ** 2).sum(2).mean(1) for name, x in models.items()
    }


def losses(trials: int, seed: int) -> list[Finding]:
    p, rng = problem(seed), generator(seed, "flame losses")
    found: list[Finding] = []
    for attack in ATTACKS:
        for q in (Q, 1.0):
            for model, values in _simulated(p, q, attack, trials, rng).items():
                what = f"loss of the {model} model, q = {q:g}"
                found.append(simulated(PAPER, f"Proposition 2, {attack}", what, p.loss(model, attack)(q), values))
    return [*found, *_misprints(p, trials, rng)]


def _misprints(p: OneRound, trials: int, rng: np.random.Generator) -> list[Finding]:
    clean = replace(p, m_a=0)
    values = _simulated(clean, 1.0, "gaussian", trials, rng)["personal"]
    holds_144, numbers_144 = against("", printed.flame_144(clean), values, clean.loss("personal", "gaussian")(1.0))
    flipped = _simulated(p, 1.0, "sign-flip", trials, rng)["global"]
    right = p.loss("global", "sign-flip")(1.0)
    holds_161, numbers_161 = against("", printed.flame_161(p), flipped, right)
    curve, threshold = p.loss("global", "same-value"), printed.flame_global_threshold(p)
    return [
        Claim(
            PAPER,
            "(144)",
            "the clean loss, with (b + lambda^2) in the last term",
            holds_144,
            numbers_144,
            "formula",
        ),
        Claim(
            PAPER,
            "(161)",
            "the loss under sign-flips, with sigma^2 / (b m) and the bias over S_a",
            holds_161,
            numbers_161,
            "formula",
        ),
        Claim(
            PAPER,
            "Proposition 2",
            "the global model's loss rises from q = m N b ||theta_b||^2 / (d sigma^2 + m_b N b) on",
            abs(threshold - curve.least) <= 1e-9 * curve.least,
            f"printed {threshold:.4g}; it rises from {curve.least:.4g} on (its denominator lacks ||theta_b||^2)",
            "formula",
        ),
    ]


def statements(trials: int, seed: int) -> list[Finding]:
    return [*_solutions(seed), *_proposition_2(seed), *_proposition_3(trials, seed), *_lemma_1()]


def _solutions(seed: int) -> list[Finding]:
    """(135) beside (136), and beside the optimality conditions (134)."""
    rng = generator(seed, "flame solutions")
    b, h, lam = torch.tensor(rng.uniform(0.5, 2, 6)), torch.tensor(rng.normal(1, 1, (6, 3))), 0.4
    w_136 = (b / (b + lam)) @ h / (b / (b + lam)).sum()
    x, w = quadratics.pfedme(b, h, lam)
    X, y = torch.tensor(rng.normal(0, 1, (6, 20, 3))), torch.tensor(rng.normal(0, 1, (6, 20)))
    A, fit = quadratics.least_squares(X, y)
    theta, reference = quadratics.pfedme(A, fit, lam)
    slope = (X.mT @ (X @ theta[..., None] - y[..., None]))[..., 0] / 20 + lam * (theta - reference)
    off = printed.flame_135(b, h, lam) / w_136
    return [
        Agreement(
            PAPER, "(136)", "w* of (135) without the second lambda, first entry", float(w_136[0]), float(w[0])
        ),
        Agreement(
            PAPER,
            "(136)",
            "theta*_1, first entry",
            float((b[0] * h[0, 0] + lam * w_136[0]) / (b[0] + lam)),
            float(x[0, 0]),
        ),
        Agreement(PAPER, "(134)", "the largest gradient in theta_i at (135)", 0.0, float(slope.abs().max())),
        Agreement(
            PAPER,
            "(134)",
            "the distance of w* and the mean of theta*_i",
            0.0,
            float((theta.mean(0) - reference).abs().max()),
        ),
        Claim(
            PAPER,
            "(135)",
            "(135) agrees with (136) where X'X = N b_i I",
            bool(((off - 1).abs() <= 1e-9).all()),
            f"it is {float(off[0]):.4g} times (136) at lambda = {lam:g}: its second sum has a lambda too many",
            "formula",
        ),
    ]


def _proposition_2(seed: int, problems: int = 500) -> list[Finding]:
    """From its threshold on, the loss rises with q; and how often there is any room between it and 1."""
    rng = generator(seed, "flame proposition 2")
    held = reach = 0
    for _ in range(problems):
        m, d = int(rng.integers(3, 12)), int(rng.integers(1, 8))
        theta = rng.normal(rng.normal(), 1.0, (m, d))
        p = OneRound(theta, int(rng.integers(0, m - 1)), int(rng.integers(5, 50)), lam=float(rng.uniform(0.1, 3)))
        for model in ("global", "personal"):
            for attack in ATTACKS:
                curve = p.loss(model, attack)
                q = rng.uniform(0, 1, 20)
                better = curve(q) <= curve(1.0) + 1e-12 * abs(curve.constant)
                held += bool((better >= (q >= curve.least)).all())
                reach += curve.least < 1
    total = problems * 2 * len(ATTACKS)
    return [
        Claim(
            PAPER,
            "Proposition 2",
            "FLAME's loss is at most pFedMe's and Ditto's for q from the (corrected) threshold on",
            held == total,
            f"in {held:,} of {total:,} cases; the threshold leaves room below q = 1 in {reach:,} of them",
        )
    ]


def _proposition_3(trials: int, seed: int) -> list[Finding]:
    rng = generator(seed, "flame proposition 3")
    equal, free = 0, dict.fromkeys(_GAINS, 0)
    draws = min(trials, 2000)
    for _ in range(draws):
        theta = rng.normal(1.0, 1.0, (10, 4))
        on_sphere = bias_spread(theta / np.linalg.norm(theta, axis=1, keepdims=True))
        equal += on_sphere(Q) < on_sphere(1.0)
        spread = bias_spread(theta)
        for q in _GAINS:
            free[q] += bool(spread(q) < spread(1.0))
    two = bias_spread(np.array([[3.0], [1.0]]))
    large = bias_spread(rng.normal(1.0, 1.0, (100_000, 4)))
    return [
        Claim(
            PAPER,
            "Proposition 3",
            "FLAME's losses vary less than pFedMe's and Ditto's, where all true models have the same norm",
            equal == draws,
            f"in {equal:,} of {draws:,} draws at q = {Q:g}",
        ),
        Claim(
            PAPER,
            "Proposition 3",
            "FLAME's losses vary less than pFedMe's and Ditto's",
            min(free.values()) == draws,
            f"of {draws:,} draws of 10 clients from N(1, I) in "
            + ", ".join(f"{count / draws:.0%} at q = {q:g}" for q, count in free.items())
            + f"; for theta = 3 and 1 it is "
            f"{two(1.0):g} at q = 1 and {two(0.5):g} at q = 0.5; for 100,000 clients from N(1, I) the least is at "
            f"q = {large.least:.3f}",
        ),
        Claim(
            PAPER,
            "(177)",
            "the second derivative of the variance in q is at most 0",
            two.square <= 0,
            f"it is {2 * two.square:g} for theta = 3 and 1",
            "formula",
            "Proposition 3",
        ),
    ]


def _lemma_1() -> list[Finding]:
    """Its conditions on rho; section VI has lambda = 1, m = 10, alpha = 1/m and rho = 0.1."""
    lam_alpha, rho = 0.1, 0.1
    band = lemma_1_band(lam_alpha, 0.0)
    small = lemma_1_band(0.01, 0.0)
    values = np.linspace(0.001, 0.5, 500)
    last = max(float(x) for x in values if lemma_1_band(float(x), 0.0))
    ratio = max(float(share) for share in np.linspace(0, 1, 201) if lemma_1_band(0.01, 0.01 * float(share)))
    inside = band is not None and band[0] < rho < band[1]
    return [
        Claim(
            PAPER,
            "Lemma 1",
            "its conditions hold at the settings of section VI, lambda alpha = 0.1 and rho = 0.1",
            inside,
            f"rho must lie in {_interval(band)} even for L = 0; at lambda alpha = 0.01 in {_interval(small)}, "
            f"and L below {ratio:.2f} lambda; there is no rho for lambda alpha above {last:.3f}",
            "question",
        )
    ]


def _interval(band: tuple[float, float] | None) -> str:
    return f"({band[0]:.4g}, {band[1]:.4g})" if band else "nothing"
