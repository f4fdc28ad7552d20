"""The variance of the test losses over clients, in lp-proj's linear problem without attack (Appendix B.4).

The true models are w_k ~ N(mu, S). There are two ways to read 'the variance of test losses', and they do not order
the methods alike. The paper takes each client's loss in expectation over the noise of its training data: what then
varies is the bias, local training has none, and the variance falls to 0 with lambda. In a run the losses are those
of the models at hand, whose noise varies too.
"""

from __future__ import annotations

import numpy as np

from descant.theory.montecarlo import Array, Value, mix


def expected_loss_variance(S: Array, N: int, b: float, lam: Value) -> Value:
    """E V of Theorem 32, of losses in expectation over the training noise; S [t, t] is of the tied dimensions.

    ||wbar - w_k||^2 has variance 2 (1 - 1/N)^2 tr S^2 over draws, and covariance 2 / N^2 tr S^2 between clients, so
    that the variance over clients is 2 (N - 1)(N - 2) / N^2 tr S^2 in the mean. lam = inf is FedAvg.
    """
    c = mix(lam, b)[1]
    return b**2 / 4 * c**4 * 2 * (N - 1) * (N - 2) / N**2 * float((S**2).sum())


def realised_loss_variance(S: Array, N: int, b: float, lam: Value, r: float, untied: int) -> Value:
    """E of the variance over clients of the losses of the models at hand.

    r is the variance of a local estimate, and `untied` the number of dimensions that are trained locally. The error
    of client k in the tied ones is a z_k + c (mean of the estimates - w_k), normal with covariance V, and C between
    two clients; the variance over clients of ||e_k||^2 is (1 - 1/N) (2 tr V^2 - 2 tr C^2) in the mean.
    """
    a, c = mix(lam, b)
    t, trace, square = len(S), float(np.trace(S)), float((S**2).sum())
    shared = (2 * a * c + c**2) * r / N  # V = v I + c^2 (1 - 1/N) S and C = shared I - c^2 / N S
    v = a**2 * r + shared
    V = t * v**2 + 2 * v * c**2 * (1 - 1 / N) * trace + c**4 * (1 - 1 / N) ** 2 * square
    C = t * shared**2 - 2 * shared * c**2 / N * trace + c**4 / N**2 * square
    return b**2 / 4 * (1 - 1 / N) * 2 * (V - C + untied * r**2)
