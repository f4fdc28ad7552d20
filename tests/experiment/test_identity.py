"""The code that a run follows from is looked up once, and never taken for other code."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from descant.experiment.identity import code

Loss = Callable[[Tensor, Tensor], Tensor]


def two_of_one_name() -> tuple[Loss, Loss]:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets

    first = loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:  # type: ignore[no-redef]
        return targets - outputs

    return first, loss


def test_functions_of_the_same_name_are_told_apart_however_often_they_are_looked_up() -> None:
    first, second = two_of_one_name()
    assert first.__qualname__ == second.__qualname__
    for _ in range(2):
        assert code(first) != code(second)
    assert code(first) == code(two_of_one_name()[0])
