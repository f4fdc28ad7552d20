"""Ditto's own federations: Fashion-MNIST over 500 devices, and point estimation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.clients import clients_of
from descant.data.federated import FederatedData
from descant.data.partitions import Partition
from descant.data.partitions.base import IntArray, Targets
from descant.datasets.readers.idx import read_mnist
from descant.datasets.sources import folder_of
from descant.draws import seed_of
from descant.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class DittoShares(Partition):
    """Device k holds five classes in a row, k to k + 4 (mod C), in log-normal shares, as Ditto's script deals.

    Sizes are in proportion to lognormal(3, 1) + 10; a device gets one example a class more, and a sixth as many
    (and one) of the official test part. Each class is dealt in order; where it does not suffice for the next
    device, it begins anew, so that some examples are held by several devices.
    """

    name: ClassVar[str] = "ditto-shares"

    clients: int
    test_from: int
    classes: int = 10

    @property
    def overlaps(self) -> bool:
        return True

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        rng = self.generator(seed)
        sizes = rng.lognormal(3, 1, self.clients) + 10
        sizes *= self.test_from / sizes.sum()
        rows = [np.flatnonzero(targets == label) for label in range(self.classes)]
        piles = [[own[own < self.test_from], own[own >= self.test_from]] for own in rows]
        used = np.zeros((self.classes, 2), dtype=np.int64)
        hands = []
        for k in range(self.clients):
            shares = rng.lognormal(1, 1, 5)
            shares /= shares.sum()
            hand = []
            for j, share in enumerate(shares):
                label = (k + j) % self.classes
                for part, count in enumerate((int(share * sizes[k]) + 1, int(share * sizes[k] / 6) + 1)):
                    pile = piles[label][part]
                    count = min(count, len(pile))
                    if used[label, part] + count > len(pile):
                        used[label, part] = 0
                    hand.append(pile[used[label, part] : used[label, part] + count])
                    used[label, part] += count
            hands.append(np.concatenate(hand))
        return hands


def ditto_fashion(
    *, clients: int = 500, valid: float = 0.1, seed: int = 0, root: Path | str | None = None
) -> FederatedData:
    """Ditto's Fashion-MNIST: 500 devices with five classes each, tested on official test pictures (Ditto).

    Pixels are standardised one by one with mean and deviation of the 60,000 training pictures, as in the authors'
    script; some pictures are held by several devices, as there. Their draw (another generator) is not reproduced.
    """
    if clients < 1:
        raise SettingError(f"ditto-fashion: clients = {clients!r}: it must be at least 1")
    whole = read_mnist(folder_of("fashion-mnist", root), "ditto-fashion")
    assert whole.test_from is not None
    train = whole.inputs[: whole.test_from].numpy()
    mean = torch.from_numpy(train.mean(0, dtype=np.float64) / 255).float()
    std = torch.from_numpy(train.std(0, dtype=np.float64) / 255).float() + 0.001 / 255

    def standardised(*parts: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.sub_(mean).div_(std) for x in parts)  # in place: they are not anybody else's yet

    partition = DittoShares(clients=clients, test_from=whole.test_from)
    return clients_of(whole, partition, test="official", valid=valid, seed=seed, finish=standardised)


def point_estimation(
    *,
    clients: int = 20,
    samples: int = 20,
    tau: float = 0.5,
    sigma: float = 1.0,
    malicious: int = 0,
    tau_a: float = 1.0,
    theta: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """Ditto's point estimation: estimate v_k from n noisy looks at it (Ditto, section 3.3; Theorem 8).

        v_k ~ N(theta, tau^2),  x_ki = v_k + z_ki,  z_ki ~ N(0, sigma^2)

    The first `malicious` devices have v_k ~ N(theta, tau_a^2) instead. An example's input is 1 and its target x_ki:
    with the model nn.Linear(1, 1, bias=False) and the loss squared_error, training is the paper's problem (twice
    its objective, plus a constant). The test part is one example whose target is v_k itself: the test loss is the
    squared error of the estimate.
    """
    values = {
        "clients": clients,
        "samples": samples,
        "tau": tau,
        "sigma": sigma,
        "malicious": malicious,
        "tau_a": tau_a,
        "theta": theta,
        "seed": seed,
    }
    for field, value in values.items():
        least = 1 if field in ("clients", "samples") else -float("inf") if field == "theta" else 0
        if not (isfinite(value) and value >= least):
            raise SettingError(f"point-estimation: {field} = {value!r}: it must be a number of at least {least}")
    if malicious > clients:
        raise SettingError(f"point-estimation: malicious = {malicious!r}: it must be at most clients = {clients}")
    drawn = []
    for k in range(clients):
        rng = np.random.default_rng(seed_of(seed, "point-estimation", k))
        v = theta + (tau_a if k < malicious else tau) * rng.standard_normal()
        x = v + sigma * rng.standard_normal(samples)
        drawn.append({"train": _looks(x), "test": _looks(np.array([v]))})
    data = FederatedData.from_arrays(drawn, name="point-estimation")
    return replace(data, settings=values)


def _looks(at: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    return np.ones((len(at), 1), dtype=np.float32), at.astype(np.float32)
