"""Hush: what its fields may be, and what cannot go with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant import FederatedData, Task
from descant.coupling import Fold, Identity
from descant.errors import SettingError
from descant.methods import Hush
from tests import held
from tests.methods.hush_loop import FULL, M, run


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("m", 0),
        ("m", 1.5),
        ("m", -0.1),
        ("bits", 0),
        ("bits", 17),
        ("bits", (2, 0)),
        ("bits", (17, 1)),
        ("bits", (2, 1, 1)),
        ("pool", 0),
        ("beta", 1.0),
        ("lam", -1.0),
        ("gain", 0.0),
        ("shared_lr", 0.0),
    ],
)
def test_fields_that_make_no_sense_are_refused(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"Hush.{field} = "):
        Hush(**{field: value})


def test_a_dimension_below_one_is_a_share(data: FederatedData, linear: Task) -> None:
    share, number = (run(linear, data, Hush(**FULL | {"m": m})) for m in (1 / 3, M))
    assert torch.equal(held.shared(share), held.shared(number))
    assert Hush().dim(79_510) == 7569 and Hush(m=0.04).dim(3) == 1


def test_more_dimensions_than_the_model_has_are_refused(data: FederatedData, linear: Task) -> None:
    with pytest.raises(SettingError, match=r"method\.m = 16: it must be at most 15, the number of the"):
        run(linear, data, Hush(m=16))


def test_a_dimension_is_left_out_where_the_projection_keeps_all(data: FederatedData, linear: Task) -> None:
    said = r"method\.m = 3: it must be left out, since the projection 'identity' keeps all 15 dimensions"
    with pytest.raises(SettingError, match=said):
        run(linear, data, Hush(m=3, projection=Identity()))
    left_out, all_of_them = (run(linear, data, Hush(projection=Identity(), **m)) for m in ({}, {"m": 15}))
    assert torch.equal(held.shared(left_out), held.shared(all_of_them))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"codec": {"name": "top-k", "share": 0.2}}, "codec: 'top-k' remembers what it sent"),
        ({"codec": "lbgm"}, "codec: 'lbgm' remembers"),
        ({"aggregator": "centered-clipping"}, "aggregator: 'centered-clipping' remembers"),
        ({"downlink": "float16"}, "downlink: not with the method 'hush'"),
    ],
)
def test_nothing_is_remembered_of_a_subspace_that_is_gone(settings: dict[str, Any], said: str) -> None:
    data = dc.data.synthetic(clients=4, samples=20, seed=1)

    def run(**more: Any) -> dc.Run:
        return dc.simulate(nn.Linear(60, 10), data, Hush(m=20, steps=2, batch=4, **more), rounds=2, **settings)

    with pytest.raises(SettingError, match=said):
        run()
    if "downlink" not in settings:
        assert run(projection=Fold()).collapse is None, "one subspace for ever"


def test_a_pool_needs_subspaces_to_draw_and_one_point_zero_is_no_number_of_dimensions() -> None:
    with pytest.raises(SettingError, match="pool = 4"):
        Hush(pool=4, projection=Fold())
    with pytest.raises(SettingError, match=r"m = 1\.0"):
        Hush(m=1.0)
