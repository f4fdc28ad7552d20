"""The checks that `descant theory` prints: what they say comes out of the computation."""

from __future__ import annotations

import numpy as np
import pytest

from descant.theory import DittoProblem, FederatedRegression, flame, printed
from descant.theory.checks import CHECKS, Agreement, Claim, Finding, ditto, fairness, lpproj
from descant.theory.checks import flame as flame_checks
from descant.theory.checks.findings import against, simulated
from descant.theory.fairness import expected_loss_variance


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return [finding for check in CHECKS.values() for finding in check(300, 1)]


def verdict(findings: list[Finding], where: str, end: str) -> bool:
    (found,) = [f for f in findings if isinstance(f, Claim) and f.where == where and f.statement.endswith(end)]
    return found.holds


@pytest.mark.slow
def test_every_closed_form_agrees_with_its_simulation(findings: list[Finding]) -> None:
    rows = [finding for finding in findings if isinstance(finding, Agreement)]
    assert len(rows) > 80 and all(row.agrees for row in rows)
    off = np.array([row.off for row in rows if row.off is not None])
    assert 0.7 < off.std() < 1.4  # standard errors are neither too large nor too small


@pytest.mark.slow
def test_the_verdicts(findings: list[Finding]) -> None:
    claims = [finding for finding in findings if isinstance(finding, Claim)]
    fail = {(claim.paper, claim.where) for claim in claims if not claim.holds}
    assert fail >= {
        ("Ditto", "Figure 1, attacked"),
        ("lp-proj", "4.2, Figure 1"),
        ("lp-proj", "Appendix B.2"),
        ("lp-proj", "Lemma 29"),
        ("lp-proj", "(46) to (48)"),
        ("lp-proj", "Appendix B.4"),
        ("FLAME", "(135)"),
        ("FLAME", "(144)"),
        ("FLAME", "Lemma 1"),
        ("Fed+", "(12)"),
    }
    assert verdict(findings, "Proposition 16", "at least the threshold")
    assert verdict(findings, "Appendix B.2 and Theorem 30", "just where local training beats lp-proj")
    assert verdict(findings, "Proposition 3", "same norm") and not verdict(findings, "Proposition 3", "Ditto's")
    assert verdict(findings, "Theorem 14", "O(1/T)")


def test_findings_do_not_depend_on_what_else_is_computed() -> None:
    alone = CHECKS["FLAME: losses"](200, 3)
    CHECKS["Ditto: errors"](200, 3)
    assert CHECKS["FLAME: losses"](200, 3) == alone
    assert CHECKS["FLAME: losses"](200, 4) != alone


@pytest.mark.few(1)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_wrong_closed_form_is_found_out(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    error, loss, spread = DittoProblem.error, FederatedRegression.squared_error, expected_loss_variance
    monkeypatch.setattr(DittoProblem, "error", lambda self, lam: factor * error(self, lam))
    monkeypatch.setattr(FederatedRegression, "squared_error", lambda self, lam: factor * loss(self, lam))
    monkeypatch.setattr(fairness, "expected_loss_variance", lambda *arguments: factor**4 * spread(*arguments))
    found = [*ditto.losses(3000, 0), *lpproj.losses(200, 0), *fairness.variances(3000, 0)]
    wrong = [row for row in found if isinstance(row, Agreement) and not row.agrees]
    for text in ("test error", "loss of pfedme at 0.01", "variance, expected losses"):
        assert any(text in row.what for row in wrong), text


def test_a_right_formula_in_the_place_of_a_misprint_is_found_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict on a printed formula is not written down: put right, it changes."""
    monkeypatch.setattr(printed, "lp_proj_clean_loss", lambda problem, lam: problem.loss("lp-proj", lam))
    monkeypatch.setattr(printed, "lemma_29_lambda", lambda problem: problem.lambda_star)
    monkeypatch.setattr(printed, "flame_global_threshold", lambda p: p.loss("global", "same-value").least)
    monkeypatch.setattr(printed, "flame_144", lambda p: p.loss("personal", "gaussian")(1.0))
    monkeypatch.setattr(printed, "flame_161", lambda p: p.loss("global", "sign-flip")(1.0))
    monkeypatch.setattr(flame, "lemma_1_band", lambda *_: (0.05, 0.2))
    monkeypatch.setattr(flame_checks, "lemma_1_band", lambda *_: (0.05, 0.2))
    found = [*lpproj.statements(300, 1), *flame_checks.losses(300, 1), *flame_checks.statements(300, 1)]
    for where in ("Appendix B.2", "Lemma 29", "(144)", "(161)", "Lemma 1"):
        assert verdict(found, where, ""), where
    assert all(claim.holds for claim in found if isinstance(claim, Claim) and claim.where == "Proposition 2")


def test_a_row_says_by_how_many_standard_errors_it_is_off() -> None:
    row = simulated("paper", "where", "what", 1.0, np.array([1.0, 3.0] * 50))
    assert row.off == pytest.approx(1.0 / (np.std([1.0, 3.0] * 50, ddof=1) / 10))
    assert not row.agrees
    assert Agreement("", "", "", 2.0, 2.0 + 1e-12).agrees and not Agreement("", "", "", 2.0, 2.0 + 1e-6).agrees
    assert (
        not Agreement("", "", "", float("nan"), 1.0, 0.1).agrees
        and not Agreement("", "", "", 0.0, float("inf")).agrees
    )
    holds, numbers = against("", 5.0, np.array([1.0, 3.0] * 50), 2.0)
    assert not holds and "printed 5" in numbers and "closed form 2" in numbers
