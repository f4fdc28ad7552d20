"""Small data of any shape."""

from collections.abc import Callable

import numpy as np
import pytest

from descant.data import FederatedData

Make = Callable[..., FederatedData]


@pytest.fixture
def make() -> Make:
    def small(
        shape: tuple[int, ...],
        classes: int,
        *,
        tokens: int = 0,
        each: bool = False,
        clients: int = 1,
        examples: int = 4,
    ) -> FederatedData:
        """Random inputs, or tokens below `tokens`; a label an example, or one for each token."""
        rng = np.random.default_rng(0)

        def part(n: int) -> tuple[np.ndarray, np.ndarray]:
            inputs = rng.integers(0, tokens, (n, *shape)) if tokens else rng.normal(size=(n, *shape))
            labels = rng.integers(0, classes, (n, *shape) if each else n)
            return inputs if tokens else inputs.astype(np.float32), labels

        parts = [{"train": part(examples), "test": part(2)} for _ in range(clients)]
        return FederatedData.from_arrays(parts, classes=classes)

    return small
