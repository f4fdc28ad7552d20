"""DGC: the paper's loop, with its warm-up, its clipping and its layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toys.post import blank, returned

from descant import Task
from descant.codecs import DGC, TopK
from descant.errors import SettingError
from descant.mail import Mail
from descant.task import Layout


def updates(post: Any, leaf: Tensor, round: int = 1, layout: Layout | None = None) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return replace(mail, ctx=replace(mail.ctx.at(round), layout=layout or mail.ctx.layout))


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Task(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))).layout  # 20, 4, 12 and 3 numbers


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("clip", [None, 2.0])
def test_it_is_a_plain_loop_over_rounds_and_clients(
    post: Any, layout: Layout, clip: float | None, by_layer: bool
) -> None:
    codec, generator = DGC(share=0.1, warmup=2, clip=clip, beta=0.7, by_layer=by_layer), np.random.default_rng(0)
    memory = codec.memory({"x": torch.zeros(3, 39).double()})
    u, v, norms = np.zeros((3, 39)), np.zeros((3, 39)), []
    for t, share in enumerate([0.1 ** (1 / 3), 0.1 ** (2 / 3), 0.1, 0.1, 0.1], 1):
        g = generator.normal(size=(3, 39)) * generator.choice([0.01, 1.0], size=(3, 1))
        mail = updates(post, torch.from_numpy(g), t, layout)
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"].numpy()
        for k in range(3):
            norm = np.sqrt(sum(number**2 for number in g[k]))
            norms.append(norm)
            u[k] = 0.7 * u[k] + g[k] * (min(1.0, clip / norm) if clip else 1.0)
            v[k] += u[k]
            sent, start = np.zeros(39), 0
            for size in (20, 4, 12, 3) if by_layer else (39,):
                order = sorted(range(start, start + size), key=lambda i: -abs(v[k, i]))
                for i in order[: max(1, round(share * size))]:
                    sent[i], v[k, i], u[k, i] = v[k, i], 0.0, 0.0
                start += size
            np.testing.assert_allclose(back[k], sent, rtol=1e-12)
        np.testing.assert_allclose(memory["x.momentum"].numpy(), u, rtol=0, atol=1e-12)
        np.testing.assert_allclose(memory["x.residual"].numpy(), v, rtol=0, atol=1e-12)
    assert min(norms) < 2.0 < max(norms), "some are clipped"


def test_the_warm_up_is_the_papers() -> None:
    """Section 3.3: sparsity 75, 93.75, 98.4375, 99.6 and 99.9 %."""
    sparsity = [1 - DGC(share=0.001, warmup=4).share_in(t) for t in (1, 2, 3, 4, 5, 6, 100)]
    assert sparsity == pytest.approx([0.75, 0.9375, 0.984375, 0.996, 0.999, 0.999, 0.999], abs=2e-3)
    assert DGC(share=0.3, warmup=0).share_in(1) == 0.3


def test_without_momentum_it_is_top_k(post: Any) -> None:
    dgc, topk = DGC(share=0.2, beta=0.0, warmup=0), TopK(share=0.2)
    memories = [codec.memory({"x": torch.zeros(2, 30)}) for codec in (dgc, topk)]
    for t in range(1, 5):
        mail = updates(post, torch.randn(2, 30, generator=torch.Generator().manual_seed(t)), t)
        found = [codec.encode(mail.ctx, m, mail) for codec, m in zip((dgc, topk), memories, strict=True)]
        assert found[0][1] == found[1][1]
        memories = [memory for memory, _ in found]
        assert torch.equal(memories[0]["x.residual"], memories[1]["x.residual"])


def test_what_is_short_enough_is_not_touched_by_clipping(post: Any) -> None:
    leaf = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)) / 30
    assert torch.equal(returned(DGC(share=1.0, clip=1.0), updates(post, leaf))["x"], leaf)
    long = returned(DGC(share=1.0, clip=1.0), updates(post, 1e38 * leaf))["x"]
    assert torch.allclose(long, leaf / leaf.norm(dim=1, keepdim=True), rtol=1e-5), "however long it is"


def test_layers_of_vectors_that_are_no_model_are_not_asked_for(post: Any, layout: Layout) -> None:
    leaf = torch.arange(1.0, 41.0)[None]
    back = returned(DGC(share=0.1, warmup=0, by_layer=True), updates(post, leaf, layout=layout))["x"]
    assert back.nonzero()[:, 1].tolist() == [36, 37, 38, 39]


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", 0.0), ("share", 1.5), ("warmup", -1), ("clip", 0.0), ("beta", 1.0), ("beta", -0.1)],
)
def test_fields_are_checked(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"DGC.{field} = {value}"):
        DGC(**{field: value})
