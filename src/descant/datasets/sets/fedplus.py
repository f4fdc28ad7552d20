"""The federations of Fed+ (sections 5.1 and 5.2) that are made from MNIST, EMNIST and nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from descant.data.clients import clients_of
from descant.data.federated import FederatedData
from descant.data.part import Part
from descant.data.partitions import IID, Labels, PowerLawSizes
from descant.datasets.readers.idx import read_emnist, read_mnist
from descant.datasets.sources import folder_of
from descant.draws import seed_of
from descant.errors import SettingError

A_TO_J = (36, 46)  # 'a' to 'j' among EMNIST's 62 classes: digits, capitals, small letters


def mnist_robust(
    *,
    clients: int = 10,
    negative: float | None = None,
    test: float = 0.5,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """MNIST-robust: MNIST dealt evenly, but some parties see negatives (Fed+, section 5.1).

    The 70,000 digits are shuffled and dealt to `clients` parties (10 or 50 in the paper); for the share `negative`
    of them, 10 % of 10 and 20 % of 50 where it is left out, a pixel x is 1 - x. Half of a party's digits are its
    test part; the share `valid` of the others is taken from training, which the paper does not do.
    """
    data = clients_of(
        replace(read_mnist(folder_of("mnist", root)), name="mnist-robust"),
        IID(clients=clients),
        test=test,
        valid=valid,
        seed=seed,
    )
    share = (0.1 if clients < 50 else 0.2) if negative is None else negative
    if not 0 <= share <= 1:
        raise SettingError(f"mnist-robust: negative = {negative!r}: it must be a share in [0, 1]")
    order = np.random.default_rng(seed_of(seed, "negative")).permutation(clients)
    chosen = set(order[: round(share * clients)].tolist())
    changed = _changed(data, lambda k, part, x, y: 1 - x if k in chosen else x)
    return replace(changed, settings={"clients": clients, "negative": share, **data.settings})


def mnist_personal(
    *,
    clients: int = 10,
    negative: float | None = None,
    scale: float = 0.5,
    test: float = 0.5,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """MNIST-personal: MNIST-robust, and for every party two digits under Laplace noise (Fed+, section 5.1).

    Each party draws two digits, and Laplace noise of the given `scale` is added to its pictures of them, once. The
    paper does not give the scale: 0.5 is that of its synthetic regression.
    """
    if not scale >= 0:
        raise SettingError(f"mnist-personal: scale = {scale!r}: it must be zero or more")
    data = mnist_robust(clients=clients, negative=negative, test=test, valid=valid, seed=seed, root=root)
    pairs = [np.random.default_rng(seed_of(seed, "noisy", k)).choice(10, 2, replace=False) for k in range(clients)]

    def noisy(k: int, part: str, x: Tensor, y: Tensor) -> Tensor:
        rng = np.random.default_rng(seed_of(seed, "noise", k, part))
        hit = torch.isin(y, torch.from_numpy(pairs[k]))
        noise = torch.from_numpy(rng.laplace(0, scale, tuple(x[hit].shape)).astype(np.float32))
        changed = x.clone()
        changed[hit] += noise
        return changed

    return replace(_changed(data, noisy), name="mnist-personal", settings={**data.settings, "scale": scale})


def fedplus_mnist(
    *,
    clients: int = 1000,
    exponent: float = 1.0,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Fed+'s MNIST: 1,000 parties with one digit each, of sizes by a power law (Fed+, section 5.2).

    The partition power-law with one label a client; the paper does not give the exponent.
    """
    partition = PowerLawSizes(clients=clients, labels=1, exponent=exponent)
    examples = replace(read_mnist(folder_of("mnist", root)), name="fedplus-mnist")
    return clients_of(examples, partition, test=test, valid=valid, seed=seed)


def fedplus_emnist(
    *, clients: int = 200, test: float = 0.2, valid: float = 0.2, seed: int = 0, root: Path | str | None = None
) -> FederatedData:
    """Fed+'s EMNIST: the letters a to j over 200 parties with five of them each (Fed+, section 5.2).

    From EMNIST's split byclass; the paper calls it FEMNIST, but parties are no writers.
    """
    whole = read_emnist(folder_of("emnist", root), "byclass")
    low, high = A_TO_J
    letters = whole.where((whole.targets >= low) & (whole.targets < high))
    examples = replace(letters, name="fedplus-emnist", targets=letters.targets - low, classes=high - low)
    return clients_of(examples, Labels(clients=clients, labels=5), test=test, valid=valid, seed=seed)


def fedplus_regression(
    *, clients: int = 10, samples: int = 100, dim: int = 1000, test: float = 0.5, valid: float = 0.2, seed: int = 0
) -> FederatedData:
    """Fed+'s synthetic regression: ten parties, of which the last has another true model (Fed+, section 5.1).

    For party k, with the second arguments of N read as variances (the paper writes the last two as covariances):

        y = w_k' x + v,  v ~ N(0, 2),  x ~ N(mu_k, Sigma),  mu_k ~ N(0, 0.5) entrywise,
        w_k = w + Laplace(0.5) entrywise,  w ~ N(0, 5 I) for all but the last party, and N(0, 50 I) for that one.

    Sigma is diagonal. The paper's Sigma_jj = mod(j, 50)^-1.1 is infinite at j = 50, 100, ...: here it is
    (mod(j - 1, 50) + 1)^-1.1. Half of the 100 examples are the test part, and a fifth of the others is taken from
    training for validation, which the paper does not do.
    """
    for field, value in (("clients", clients), ("samples", samples), ("dim", dim)):
        if value < 1:
            raise SettingError(f"fedplus-regression: {field} = {value!r}: it must be at least 1")
    std = (np.arange(dim) % 50 + 1.0) ** -0.55  # the root of Sigma_jj
    drawn = []
    for k in range(clients):
        odd = k == clients - 1
        center = np.random.default_rng(seed_of(seed, "fedplus-regression", "odd" if odd else "all"))
        rng = np.random.default_rng(seed_of(seed, "fedplus-regression", k))
        w = sqrt(50 if odd else 5) * center.standard_normal(dim) + rng.laplace(0, 0.5, dim)
        mu = sqrt(0.5) * rng.standard_normal(dim)
        x = mu + std * rng.standard_normal((samples, dim))
        y = x @ w + sqrt(2) * rng.standard_normal(samples)
        drawn.append((x.astype(np.float32), y.astype(np.float32)))
    data = FederatedData.from_arrays(drawn, test=test, valid=valid, seed=seed, name="fedplus-regression")
    settings = {"clients": clients, "samples": samples, "dim": dim, "test": test, "valid": valid, "seed": seed}
    return replace(data, settings=settings)


def _changed(data: FederatedData, change: Callable[[int, str, Tensor, Tensor], Tensor]) -> FederatedData:
    """The data with the inputs that `change` makes of client k's inputs and targets in each part."""

    def of(name: str, part: Part) -> Part:
        inputs = [change(k, name, *part.client(k)) for k in range(len(part))]
        return Part(torch.cat(inputs), part.targets, part.offsets)

    return replace(data, train=of("train", data.train), valid=of("valid", data.valid), test=of("test", data.test))
