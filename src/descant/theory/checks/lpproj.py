"""lp-proj's section 4.2 and Appendix B, losses and robustness, checked; Theorem 14."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from descant.theory import printed, quadratics
from descant.theory.checks.findings import Agreement, Claim, Finding, against, simulated
from descant.theory.montecarlo import Array, generator
from descant.theory.rates import Theorem14, sampling_error
from descant.theory.regression import Attack, FederatedRegression

PAPER = "lp-proj"
FIGURE_1 = FederatedRegression()
CLEAN = FederatedRegression(n=20, N=10, N_a=0, d=12, d_sub=4, b=1.5)
TAU = FIGURE_1.M**0.5
FLIP_TAU = 3.0
LAMBDAS = (0.01, 1.0)
ATTACKS: tuple[Attack, ...] = ("same-value", "sign-flip", "gaussian")
_AT_ONCE = 100  # trials drawn together


MethodAt = tuple[str, float]  # a method and its lambda


def losses(trials: int, seed: int) -> list[Finding]:
    """Every method's loss in Figure 1's setting under every attack, and in a smaller one without."""
    cells: list[MethodAt] = [("local", 0.0), ("fedavg", np.inf)]
    cells += [(method, lam) for method in ("pfedme", "lp-proj") for lam in LAMBDAS]
    found: list[Finding] = []
    for attack in (*ATTACKS, None):
        problem, drawn = simulate(attack, cells, trials, seed)
        found += [
            simulated(
                PAPER,
                f"Appendix B, {attack or 'clean'}",
                f"loss of {method}" + (f" at {lam:g}" if 0 < lam < np.inf else ""),
                problem.loss(method, lam),
                values,
            )
            for (method, lam), values in drawn.items()
        ]
    return found


def simulate(
    attack: Attack | None, cells: Sequence[MethodAt], trials: int, seed: int
) -> tuple[FederatedRegression, dict[MethodAt, Array]]:
    """The benign clients' average losses [trials] in each cell, from one set of draws, and the problem drawn."""
    rng = generator(seed, f"lp-proj {attack}")
    problem = FIGURE_1 if attack else CLEAN
    w = problem.models(rng)
    tau = FLIP_TAU if attack == "sign-flip" else TAU
    if attack == "sign-flip":
        problem = problem.flipped(w, tau)
    drawn: dict[MethodAt, list[Array]] = {cell: [] for cell in cells}
    for first in range(0, trials, _AT_ONCE):
        estimates = problem.estimates(rng, w, min(_AT_ONCE, trials - first))
        reference = {}
        for dim in (problem.d, problem.d_sub):
            sent = problem.messages(rng, estimates, attack, tau, dim) if attack else estimates[:, :, :dim]
            reference[dim] = sent.mean(1)
        for method, lam in cells:
            tied = {"local": None, "lp-proj": reference[problem.d_sub]}.get(method, reference[problem.d])
            drawn[method, lam].append(problem.simulated_losses(estimates, w, tied, lam).mean(1))
    return problem, {cell: np.concatenate(values) for cell, values in drawn.items()}


def statements(trials: int, seed: int) -> list[Finding]:
    best, threshold = FIGURE_1.lambda_star, FIGURE_1.threshold
    rng = generator(seed, "lp-proj statements")
    w = CLEAN.models(rng)
    estimates = CLEAN.estimates(rng, w, trials)
    lam = 1.0
    values = CLEAN.simulated_losses(estimates, w, estimates[:, :, : CLEAN.d_sub].mean(1), lam).mean(1)
    holds, numbers = against("", printed.lp_proj_clean_loss(CLEAN, lam), values, CLEAN.loss("lp-proj", lam))
    from_29 = printed.lemma_29_lambda(CLEAN)
    grid = np.geomspace(1e-6, 1e2, 2001)
    gap = FIGURE_1.loss("lp-proj", grid) - FIGURE_1.loss("pfedme", grid)
    return [
        *_optimum(FIGURE_1),
        _same(estimates[0]),
        Claim(
            PAPER,
            "4.2, Figure 1",
            "lambda*_1 is 4.9e-4",
            abs(best - 4.9e-4) < 0.05e-4,
            f"lambda*_1 = {best:.3g}; {threshold:.3g} is the threshold 2 lambda*_1 / (1 - lambda*_1 / b)",
            "formula",
        ),
        Claim(
            PAPER,
            "Proposition 16",
            "lp-proj's loss is at most pFedMe's if and only if lambda is at least the threshold",
            bool(((gap <= 0) == (grid >= threshold)).all()),
            f"on 2,001 lambdas; threshold {threshold:.4g}",
        ),
        Claim(
            PAPER,
            "Appendix B.2",
            "L^l2 with Sigma / N, as in its last line",
            holds,
            f"at lambda 1: {numbers}",
            "formula",
        ),
        Claim(
            PAPER,
            "Lemma 29",
            "the printed A leads to lambda* = (1 - 1/N) sigma^2 / (n Sigma)",
            abs(from_29 - CLEAN.lambda_star) <= 1e-9 * CLEAN.lambda_star,
            f"it leads to {from_29:.5g}, and lambda* is {CLEAN.lambda_star:.5g}",
            "formula",
            "Appendix B.2",
        ),
        *_orders(seed),
        _derivative(),
    ]


def _optimum(problem: FederatedRegression) -> list[Finding]:
    """The losses at lambda*_1 in the form of (38)."""
    lam, b, N = problem.lambda_star, problem.b, problem.N
    own = lam**2 + 2 * b * lam + b**2
    tied = lam**2 / N + (N + 1) / N * b * lam + b**2
    average = lam**2 / N + (N + 1) / N * b * lam + (2 * N - 1) / N * b**2 + (N - 1) / N * b**3 / lam
    d, d_sub, unit = problem.d, problem.d_sub, problem.sigma**2 / (2 * problem.n * (b + lam) ** 2)
    printed_38 = {
        "local": d * own,
        "fedavg": d * average,
        "pfedme": d * tied,
        "lp-proj": d_sub * tied + (d - d_sub) * own,
    }
    return [
        Agreement(
            PAPER,
            "(38)",
            f"loss of {method} at lambda*_1",
            problem.loss(method, lam),
            problem.sigma**2 / 2 + unit * value,
        )
        for method, value in printed_38.items()
    ]


def _same(estimates: Array) -> Agreement:
    """Where all clients have the same b, Ditto's personal models are pFedMe's."""
    b, h = torch.full((len(estimates),), CLEAN.b, dtype=torch.float64), torch.tensor(estimates)
    apart = quadratics.ditto(b, h, 0.7)[0] - quadratics.pfedme(b, h, 0.7)[0]
    return Agreement(
        PAPER, "Proposition 16 (i)", "the distance of Ditto's and pFedMe's models", 0.0, float(apart.abs().max())
    )


def _orders(seed: int, problems: int = 2000) -> list[Finding]:
    """The 'if and only if's of Theorem 30, and what they say together, on problems drawn at random."""
    rng = generator(seed, "lp-proj orders")
    names = {
        "L^loc <= L^Avg if and only if lambda*_1 <= b": "Theorem 30",
        "L^Me <= L^Avg if and only if lambda >= (lambda*_1 - b) / 2": "Theorem 30",
        "L^l2 <= L^Avg if and only if the heterogeneity is at least the printed fraction": "Theorem 30",
        "the best L^l2 <= L^Avg if and only if lambda*_1 <= sqrt(d / (d - d_sub)) b": "Appendix B.3.2",
        "lp-proj beats pFedMe and Ditto just where local training beats lp-proj": "Appendix B.2 and Theorem 30",
    }
    kept = dict.fromkeys(names, 0)
    for _ in range(problems):
        p, lam = _draw(rng)
        star = p.lambda_star
        local, average = p.loss("local", lam), p.loss("fedavg", lam)
        me, l2 = p.loss("pfedme", lam), p.loss("lp-proj", lam)
        excess = p.Sigma + p.N_a / p.N**2 * (p.M - p.r)
        full, part = p.d * (p.b + lam) ** 2, p.d_sub * lam
        fraction = (full - part * (2 * p.b + lam)) / (full - part * lam)
        best = p.loss("lp-proj", star)
        root = (p.d / (p.d - p.d_sub)) ** 0.5
        agreed = (
            (local <= average) == (star <= p.b),
            (me <= average) == (lam >= (star - p.b) / 2),
            (l2 <= average) == (excess >= (p.N - 1) / p.N * p.r * fraction),
            (best <= average) == (star <= root * p.b),
            (l2 <= me) == (local <= l2),
        )
        for name, same in zip(names, agreed, strict=True):
            kept[name] += bool(same)
    return [
        Claim(PAPER, where, name, kept[name] == problems, f"in {kept[name]:,} of {problems:,} problems")
        for name, where in names.items()
    ]


def _draw(rng: np.random.Generator) -> tuple[FederatedRegression, float]:
    N, d = int(rng.integers(3, 30)), int(rng.integers(2, 30))
    p = FederatedRegression(
        n=int(rng.integers(30, 60)),
        N=N,
        N_a=int(rng.integers(0, N - 1)),
        d=d,
        d_sub=int(rng.integers(1, d)),
        b=float(rng.uniform(0.2, 3)),
        Sigma=float(10 ** rng.uniform(-3, 0)),
        M=float(10 ** rng.uniform(-1, 1)),
    )
    return p, float(10 ** rng.uniform(-2, 2))


def _derivative() -> Claim:
    """Remark 31's derivative of lp-proj's loss, with Sigma_1 outside the bracket, beside a difference quotient."""
    p, lam, step = FIGURE_1, 0.01, 1e-6
    b, N = p.b, p.N
    noise = b * p.d_sub * p.sigma**2 / p.n * ((1 / N - 1) * b + ((N - p.N_a) / N - 1) * lam / N) / (b + lam) ** 3
    attack = p.N_a * p.M / N**2
    outside = noise + (b**2 * lam * p.d_sub * attack + p.Sigma) / (b + lam) ** 3
    inside = noise + b**2 * lam * p.d_sub * (attack + p.Sigma) / (b + lam) ** 3
    slope = (p.loss("lp-proj", lam + step) - p.loss("lp-proj", lam - step)) / (2 * step)
    return Claim(
        PAPER,
        "Remark 31",
        "the printed derivative of lp-proj's loss, with Sigma_1 outside the bracket",
        abs(outside - slope) <= 1e-5 * abs(slope),
        f"at lambda 0.01: printed {outside:.5g}, with Sigma_1 inside {inside:.5g}, difference quotient {slope:.5g}",
        "formula",
    )


def theorem_14(trials: int, seed: int) -> list[Finding]:
    """lp-proj's reference under client sampling, with the schedule of Theorem 14, beside its exact error."""
    N, S, dim, rounds = 10, 3, 2, 1500
    schedule = Theorem14(mu_F=0.5, beta=7.0, R=2)
    rng = generator(seed, "theorem 14")
    h = rng.standard_normal((N, dim))
    h -= h.mean(0)
    w = np.full((min(trials, 400), dim), 2.0)
    spread = float((h**2).sum(1).mean())
    exact = sampling_error(schedule, rounds, 4.0 * dim, spread, N, S)
    found: list[Finding] = []
    for t in range(rounds):
        cohort = rng.random((len(w), N)).argpartition(S, axis=1)[:, :S]
        g = schedule.beta * (1 - (1 - schedule.eta(t) * schedule.mu_F) ** schedule.R)
        w = w - g * (w - h[cohort].mean(1))
        if t + 1 in (10, 100, rounds):
            error = (w**2).sum(1)
            found.append(simulated(PAPER, "Theorem 14", f"error after {t + 1} rounds", float(exact[t + 1]), error))
    late = sampling_error(schedule, 40_000, 4.0 * dim, spread, N, S)
    rate = float(np.log(late[40_000] / late[10_000]) / np.log(4))
    claim = Claim(
        PAPER,
        "Theorem 14",
        "the error under client sampling is O(1/T)",
        rate <= -0.95,
        f"it falls as T^{rate:.3f} from 10,000 to 40,000 rounds, with zeta = {schedule.zeta:g}",
    )
    return [*found, claim]
