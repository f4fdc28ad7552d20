"""scikit-learn's bundled handwritten digits, dealt to clients by label: real data without a download."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.federated import FederatedData
from descant.data.partitions import Labels, Partition, partitioned
from descant.draws import seed_of

CLASSES = 10


def digits(
    *, clients: int = 20, labels: int = 2, seed: int = 0, partition: Partition | None = None
) -> FederatedData:
    """1,797 handwritten digits (8 x 8 pixels, bundled with scikit-learn), a few labels a client.

    Pixels are scaled to [0, 1] and flattened to 64.  Every client holds `labels` labels, dealt by shards as in
    the partition `labels`.  Every image belongs to exactly one client; a client's train, valid and test parts
    come from its own images.  Another `partition` takes the place of `clients` and `labels`.
    """
    inputs, targets = _load()
    if partition is not None:
        return partitioned(_Digits(torch.from_numpy(inputs), torch.from_numpy(targets)), partition, seed=seed)
    rng = np.random.default_rng(seed_of(seed, "digits"))
    hands = Labels(clients=clients, labels=labels).deal(targets, rng)
    drawn = [(inputs[hand], targets[hand]) for hand in hands]
    data = FederatedData.from_arrays(drawn, seed=seed, classes=CLASSES, name="digits")
    return replace(data, settings={"clients": clients, "labels": labels, "seed": seed})


@dataclass(frozen=True, eq=False)
class _Digits:
    """The images before anybody holds them; the bundle does not say who wrote them."""

    inputs: Tensor
    targets: Tensor
    name: str = "digits"
    classes: int = CLASSES
    owners: None = None
    owner_names: tuple[str, ...] = ()
    test_from: None = None

    def rows(self, index: Tensor) -> Tensor:
        return self.inputs[index]


def _load() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits data come with scikit-learn: pip install scikit-learn") from error
    bundle = load_digits()
    return (bundle.data / 16).astype(np.float32), bundle.target.astype(np.int64)
