"""Synthetic(alpha, beta): logistic data whose inputs and true models differ by client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from descant.data.federated import FederatedData
from descant.data.mapped import holds, load, save
from descant.errors import SettingError, shown

FloatArray = npt.NDArray[np.float64]
_BLOCK = 1000  # clients that are drawn in one go into files
_MOST = 2**40  # numbers that a disk may hold


class TrueModel(NamedTuple):
    """What generates the examples of one client."""

    W: FloatArray  # [dim, classes]
    b: FloatArray  # [classes]
    v: FloatArray  # [dim], the mean of the inputs


def synthetic(
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    clients: int = 100,
    samples: int = 202,
    balanced: bool = True,
    seed: int = 0,
    dim: int = 60,
    classes: int = 10,
    folder: Path | str | None = None,
) -> FederatedData:
    """Synthetic(alpha, beta): 100 clients, 60 features, 10 classes (Li et al., 2020; lp-proj, section C.1).

    For client k, with alpha and beta read as standard deviations, as the authors of lp-proj do:

        u_k ~ N(0, alpha),  W_k, b_k ~ N(u_k, 1) entrywise,  B_k ~ N(0, beta),  v_k ~ N(B_k, 1) entrywise,
        x ~ N(v_k, diag(j^-1.2)),  y = argmax softmax(W_k^T x + b_k).

    u_k is one number, so it adds u_k (1 + sum_j x_j) to all logits alike and never changes a label: clients
    differ by the noise of W_k and by v_k, and alpha moves the true model but not the data.  This is so in
    the papers' definition, and kept.

    Balanced clients have `samples` examples each (202 give 129 / 32 / 41); otherwise `samples` is unused and
    n_k = 100 + floor(lognormal(4, 2)), a heavy tail.  Client k's draws come from (seed, k) alone: it is the
    same whatever the number of clients.  With a `folder`, clients are drawn into memory-mapped files, which are
    used again where they are there already: a hundred thousand clients need not fit memory.
    """
    settings = {
        "alpha": alpha,
        "beta": beta,
        "clients": clients,
        "samples": samples,
        "balanced": balanced,
        "seed": seed,
        "dim": dim,
        "classes": classes,
    }
    size = (lambda _: samples) if balanced else _power_law(100)

    def block(first: int, last: int) -> FederatedData:
        return _generate("synthetic", settings, alpha, beta, range(first, last), size, seed, dim, classes)

    _check("synthetic", settings)
    if folder is None:
        return block(0, clients)
    if holds(Path(folder), settings=settings):
        return load(Path(folder))
    blocks = (block(k, min(k + _BLOCK, clients)) for k in range(0, clients, _BLOCK))
    return save(Path(folder), blocks, "synthetic", settings)


def fedplus_synthetic(
    *, clients: int = 30, zeta: float = 1000.0, beta: float = 10.0, seed: int = 0
) -> FederatedData:
    """Fed+'s synthetic data: 30 clients of power-law sizes, zeta = 1000, beta = 10 (Fed+, section 5.2).

    `synthetic` with zeta in the place of alpha and n_k = 50 + floor(lognormal(4, 2)), the sizes of the
    FedProx code whose setting Fed+ takes.  The paper writes N(0, zeta) and N(0, beta); both are read as
    standard deviations, as in `synthetic` (zeta changes no label, see there).  A fifth of a client's
    examples is its test part, as in the paper; a fifth of the rest is taken from train for validation.
    """
    settings = {"clients": clients, "zeta": zeta, "beta": beta, "seed": seed}
    _check("fedplus-synthetic", settings)
    return _generate("fedplus-synthetic", settings, zeta, beta, range(clients), _power_law(50), seed, 60, 10)


def _power_law(least: int) -> Callable[[np.random.Generator], int]:
    return lambda rng: least + int(rng.lognormal(4, 2))


def _generate(
    name: str,
    settings: dict[str, Any],
    alpha: float,
    beta: float,
    clients: range,
    size: Callable[[np.random.Generator], int],
    seed: int,
    dim: int,
    classes: int,
) -> FederatedData:
    drawn = {}
    for k in clients:
        rng = np.random.default_rng([seed, k])
        n = size(rng)  # first, so that sizes depend on nothing else
        drawn[str(k)] = _examples(rng, true_model(rng, alpha, beta, dim, classes), n)
    return replace(FederatedData.from_arrays(drawn, seed=seed, classes=classes, name=name), settings=settings)


def _check(name: str, settings: dict[str, Any]) -> None:
    for field, value in settings.items():
        if field == "balanced":
            allowed, what = isinstance(value, bool | np.bool_), "true or false"
        elif field in ("alpha", "beta", "zeta"):
            real = isinstance(value, Real) and not isinstance(value, bool)
            allowed, what = real and math.isfinite(value) and value >= 0, "a number of at least 0"
        else:
            least = 0 if field == "seed" else 1
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            allowed, what = whole and value >= least, f"a whole number of at least {least}"
        if not allowed:
            raise SettingError(f"{name}: {field} = {shown(value)}: it must be {what}")
    clients = settings["clients"]
    numbers = clients * settings.get("samples", 1) * settings.get("dim", 1)
    if numbers > _MOST:
        what = f"smaller: {clients} clients would hold {numbers:.0e} numbers in all"
        raise SettingError(f"{name}: clients = {clients}: it must be {what}")


def true_model(rng: np.random.Generator, alpha: float, beta: float, dim: int, classes: int) -> TrueModel:
    """Draw the true model of one client."""
    u, B = alpha * rng.standard_normal(), beta * rng.standard_normal()
    W, b = u + rng.standard_normal((dim, classes)), u + rng.standard_normal(classes)
    return TrueModel(W, b, v=B + rng.standard_normal(dim))


def _examples(
    rng: np.random.Generator, model: TrueModel, samples: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    dim = len(model.v)
    std = np.arange(1, dim + 1) ** -0.6  # the root of j^-1.2
    x = model.v + std * rng.standard_normal((samples, dim))
    return x.astype(np.float32), (x @ model.W + model.b).argmax(axis=1)  # softmax keeps the argmax
