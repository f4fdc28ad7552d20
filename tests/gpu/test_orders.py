"""The orders of examples on a GPU, where there is one: the processor's, by one kernel that nobody waits for."""

from __future__ import annotations

import warnings

import pytest
import torch

from descant.draws import orders
from descant.errors import SlowWarning
from tests.gpu import waiting
from tests.ordering import case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]
EXAMPLES = (1, 2, 15, 16, 17, 50, 64, 160, 255, 300, 512, 1000, 1024, 1025, 3000)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("clients", "epochs"), [(1, 1), (1, 5), (7, 1), (50, 3), (301, 2)])
def test_orders_are_the_processors(clients: int, epochs: int, examples: int) -> None:
    given = case(clients * examples, clients, epochs, examples)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowWarning)  # nothing falls back
        found = orders(*given.asked("cuda"))
    assert found.dtype == torch.int64 and found.cpu().equal(given.plainly())


def test_more_examples_than_keys_can_number() -> None:
    given = case(3, 2, 1, 2**16 + 1)
    assert orders(*given.asked("cuda")).cpu().equal(given.plainly())


def test_clients_may_lie_apart_and_begin_anywhere() -> None:
    given = case(5, 6, 2, 9)
    apart = torch.stack([given.clients, given.sizes], 1).cuda()
    key, _, *shape, _ = given.asked()
    assert orders(key, apart[1:, 0], *shape, apart[1:, 1]).cpu().equal(given.plainly()[1:])
    clients, sizes = apart.T.contiguous()
    assert orders(key, clients[1:], *shape, sizes[1:]).cpu().equal(given.plainly()[1:])


def test_one_program_serves_all_shapes_of_like_length() -> None:
    from descant import sorting

    orders(*case(0, 3, 2, 100).asked("cuda"))
    compiled = sorting._order.device_caches[torch.cuda.current_device()][0]
    before = len(compiled)
    for clients, epochs, examples in [(1, 1, 65), (16, 16, 96), (5, 1, 128), (1, 32, 112), (33, 7, 127)]:
        orders(*case(1, clients, epochs, examples).asked("cuda"))
    assert len(compiled) == before


def test_nobody_waits_for_orders() -> None:
    asked = case(0, 20, 3, 200).asked("cuda")
    orders(*asked)  # compiled, and held against the processor
    with waiting.refused():
        orders(*asked)
