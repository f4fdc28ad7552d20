"""P is the same on a GPU as on a CPU."""

from __future__ import annotations

import pytest
import torch

from descant.coupling import Projection
from tests.coupling.projecting import KINDS, draw, layout

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("projection", KINDS.values(), ids=KINDS)
def test_every_kind_is_the_same_on_every_device(projection: Projection, dtype: torch.dtype) -> None:
    m, d = 60, 9_001
    on_cpu = projection.build(5, m, torch.empty(0, d, dtype=dtype), layout(d))
    on_gpu = projection.build(5, m, torch.empty(0, d, dtype=dtype, device="cuda"), layout(d))
    some = torch.eye(on_cpu.dim, dtype=dtype)[:m]
    entries, same = on_cpu.lift(some), on_gpu.lift(some.cuda()).cpu()
    torch.testing.assert_close(same, entries, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=1e-12)
    x = draw(3, d).to(dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(on_gpu.project(x.cuda()).cpu(), on_cpu.project(x), **tolerance)


@pytest.mark.parametrize("projection", KINDS.values(), ids=KINDS)
def test_the_same_call_gives_the_same_bits(projection: Projection) -> None:
    """So that a run that is resumed on a GPU goes on as it would have."""
    d = 300_000 if projection.name not in ("orthogonal", "dense") else 9_000
    x = draw(4, d).float().cuda()
    P = projection.build(5, 60, x, layout(d))
    c = P.project(x)
    for _ in range(5):
        assert torch.equal(P.project(x), c) and torch.equal(P.lift(c), P.lift(c))
