"""scikit-learn's bundled handwritten digits, dealt to clients by label: real data without a download."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from descant.data.federated import FederatedData
from descant.draws import seed_of
from descant.errors import SettingError

CLASSES = 10


def digits(*, clients: int = 20, labels: int = 2, seed: int = 0) -> FederatedData:
    """1,797 handwritten digits (8 x 8 pixels, bundled with scikit-learn), a few labels a client.

    Pixels are scaled to [0, 1] and flattened to 64.  Every client holds `labels` labels: each label's images
    are cut into equal shards, and every client in turn draws one shard of each of the labels with most
    shards left (the deal of the lp-proj authors for MNIST).  Every image belongs to exactly one client; a
    client's train, valid and test parts come from its own images.
    """
    inputs, targets = _load()
    hands = deal(targets, clients, labels, np.random.default_rng(seed_of(seed, "digits")))
    drawn = [(inputs[hand], targets[hand]) for hand in hands]
    data = FederatedData.from_arrays(drawn, seed=seed, classes=CLASSES, name="digits")
    return replace(data, settings={"clients": clients, "labels": labels, "seed": seed})


def deal(
    targets: npt.NDArray[np.int64], clients: int, labels: int, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """The indices of every client's examples: `labels` labels each, all examples dealt."""
    if not 1 <= labels <= CLASSES:
        raise SettingError(f"digits: labels = {labels!r}: it must be between 1 and {CLASSES}")
    images = np.bincount(targets, minlength=CLASSES)
    most = CLASSES * images.min()  # one image a shard of the rarest label
    if not CLASSES <= clients * labels <= most:
        raise SettingError(
            f"digits: clients = {clients!r} with labels = {labels} make {clients * labels} shards: "
            f"there must be {CLASSES} (one a label) to {most}"
        )
    left = np.full(CLASSES, clients * labels // CLASSES)  # shards of each label
    left[rng.permutation(CLASSES)[: clients * labels % CLASSES]] += 1
    shards = [
        np.array_split(rng.permutation(np.flatnonzero(targets == label)), left[label]) for label in range(CLASSES)
    ]
    hands = []
    for _ in range(clients):
        # Most left first, ties at random: the only greedy order in which distinct labels never run out.
        chosen = np.lexsort((rng.random(CLASSES), -left))[:labels]
        left[chosen] -= 1
        hands.append(np.concatenate([shards[label][left[label]] for label in chosen]))
    return hands


def _load() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits data come with scikit-learn: pip install scikit-learn") from error
    bundle = load_digits()
    return (bundle.data / 16).astype(np.float32), bundle.target.astype(np.int64)
