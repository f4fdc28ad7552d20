"""Dropout by address: the mask follows from (seed, role, round, client, step) and the place in the batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import descant as dc
from descant.execution import Loop, Vmap, choose
from descant.task import Batch, Task
from descant.task.dropout import AddressedDropout

Helper = Callable[..., Any]


class Transposed(nn.Module):
    """Dropout where the examples lie on the second axis, as in much code for sequences."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, inputs: Tensor) -> Tensor:
        dropped: Tensor = self.drop(inputs.transpose(0, 1))
        return dropped.transpose(0, 1)


class Scaled(nn.Module):
    """Something to train (a factor of one), then `layers`: ones in, masks out."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(self.factor * inputs)
        return outputs


def masks(model: nn.Module, shape: tuple[int, ...], key: int | None = 0) -> Tensor:
    """What a training pass at an address makes of ones; without a key, what a prediction makes of them."""
    task = Task(model)
    address = None if key is None else torch.tensor(key)
    return task.apply(task.start(), torch.empty(0), torch.ones(shape), address)[0].detach()


def test_the_same_address_is_the_same_mask_and_another_is_another() -> None:
    model = Scaled(nn.Dropout(0.5))
    one = masks(model, (8, 50), key=1)
    assert torch.equal(masks(model, (8, 50), key=1), one)
    assert 0.4 < float((masks(model, (8, 50), key=2) != one).float().mean()) < 0.6


def test_torchs_own_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = masks(Scaled(nn.Dropout(0.5)), (8, 50))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(masks(Scaled(nn.Dropout(0.5)), (8, 50)), one)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout1d(0.5), nn.Dropout2d(0.5), Transposed(0.5)])
def test_padded_rows_do_not_move_the_masks_of_real_ones(layer: nn.Module) -> None:
    long, short = masks(Scaled(layer), (8, 6, 5, 4)), masks(Scaled(layer), (3, 6, 5, 4))
    assert torch.equal(long[:3], short)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d])
def test_each_is_dropped_with_its_probability_and_the_rest_scaled(p: float, kind: type[nn.Module]) -> None:
    drawn = masks(Scaled(kind(p)), (100, 400, 1, 1))
    kept = drawn != 0
    torch.testing.assert_close(drawn[kept], torch.full_like(drawn[kept], 1 / (1 - p)))
    assert stats.binomtest(int(kept.sum()), kept.numel(), 1 - p).pvalue > 1e-3


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(nn.Dropout1d, (50, 20, 6)), (nn.Dropout2d, (50, 20, 3, 2)), (nn.Dropout3d, (50, 20, 3, 2, 2))],
)
def test_channels_are_dropped_whole(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    channels = masks(Scaled(kind(0.5)), shape).flatten(2)  # [50, 20, ...]
    assert torch.equal(channels, channels[..., :1].expand_as(channels))
    assert stats.binomtest(int((channels[..., 0] > 0).sum()), 1000, 0.5).pvalue > 1e-3


def test_single_activations_are_dropped_one_by_one() -> None:
    channels = masks(Scaled(nn.Dropout(0.5)), (50, 20, 6)).flatten(2)
    assert not torch.equal(channels, channels[..., :1].expand_as(channels))


def test_p_of_one_leaves_nothing_and_p_of_zero_everything() -> None:
    assert torch.equal(masks(Scaled(nn.Dropout(1.0)), (4, 5)), torch.zeros(4, 5))
    assert torch.equal(masks(Scaled(nn.Dropout(0.0)), (4, 5)), torch.ones(4, 5))


def test_predictions_drop_nothing() -> None:
    model = Scaled(nn.Dropout(0.5), nn.Dropout2d(0.5))
    assert torch.equal(masks(model, (4, 5, 2, 2), key=None), torch.ones(4, 5, 2, 2))


def test_two_layers_draw_two_masks() -> None:
    first = masks(Scaled(nn.Dropout(0.5)), (50, 200)) > 0
    both = masks(Scaled(nn.Dropout(0.5), nn.Dropout(0.5)), (50, 200)) > 0
    assert not (both & ~first).any()
    assert stats.binomtest(int(both.sum()), both.numel(), 0.25).pvalue > 1e-3


def test_a_layer_used_twice_draws_two_masks_at_every_pass() -> None:
    shared = nn.Dropout(0.5)
    model = Scaled(shared, nn.Identity(), nn.Sequential(shared))
    both = masks(model, (50, 200)) > 0
    assert stats.binomtest(int(both.sum()), both.numel(), 0.25).pvalue > 1e-3
    task = Task(model)
    passes = [task.apply(task.start(), torch.empty(0), torch.ones(5, 9), torch.tensor(3))[0] for _ in range(3)]
    assert torch.equal(passes[0], passes[1]) and torch.equal(passes[0], passes[2])


def test_a_layer_that_stands_twice_in_one_sequence_is_addressed_in_both_places() -> None:
    shared = nn.Dropout(0.5)
    choose(Task(Scaled(shared, shared), "squared_error"), torch.ones(3, 4), torch.ones(3, 4))
    both = masks(Scaled(shared, shared), (50, 200)) > 0
    assert stats.binomtest(int(both.sum()), both.numel(), 0.25).pvalue > 1e-3


def test_the_users_module_keeps_torchs_dropout() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.3)))
    task = Task(model)
    for seen in (model, task.module(task.start())):
        assert type(seen[1][0]) is nn.Dropout  # type: ignore[index]


def test_a_buffer_that_the_user_calls_key_is_the_users() -> None:
    class Keyed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("key", torch.tensor([10.0, 20.0]))
            self.key: Tensor

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs + self.key

    assert torch.equal(masks(Scaled(nn.Dropout(0.0), Keyed()), (1, 2), key=5), torch.tensor([[11.0, 21.0]]))


def test_vmap_and_loop_draw_the_same_masks_whatever_the_padding(
    padded: Helper, grads: Helper, around: Helper
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), Transposed(0.2), nn.Linear(16, 3)).double()
    task = Task(model)
    clients = [(torch.randn(n, 4).double(), torch.arange(n) % 3) for n in (7, 4, 1)]
    x, batch = around(task.start(), 3), padded(clients)
    of_all, _ = grads(Vmap(task), x, batch)
    torch.testing.assert_close(grads(Loop(task), x, batch)[0], of_all, rtol=1e-10, atol=1e-12)
    for k, client in enumerate(clients):  # each alone, without any padding
        alone = padded([client])._replace(key=batch.key[k : k + 1])
        torch.testing.assert_close(grads(Vmap(task), x[k : k + 1], alone)[0][0], of_all[k], rtol=1e-10, atol=1e-12)
    other = Batch(batch.inputs, batch.targets, batch.mask, batch.key + 100)
    assert not torch.allclose(grads(Vmap(task), x, other)[0], of_all)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [{"mode": "loop"}, {"chunk": 1}, {"chunk": 2}])
def test_a_run_with_dropout_depends_on_neither_mode_nor_chunk(setting: dict[str, Any]) -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).double())
    clients = [(torch.randn(n, 4), torch.arange(n) % 3) for n in (12, 7, 20, 9)]
    data = dc.FederatedData.from_arrays(clients, classes=3)
    method = dc.methods.Ditto(steps=3, batch=4, solver=dc.methods.FedAvg(epochs=1, batch=4))
    one, other = (dc.simulate(task, data, method, rounds=3, seed=5, **s) for s in ({}, setting))
    for k in range(4):
        torch.testing.assert_close(
            other.personal(k, round="last").state_dict(),
            one.personal(k, round="last").state_dict(),
            rtol=1e-9,
            atol=1e-11,
        )
    torch.testing.assert_close(
        other.shared(round="last").state_dict(), one.shared(round="last").state_dict(), rtol=1e-9, atol=1e-11
    )


def test_every_step_round_client_and_model_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []
    apply = Task.apply

    def spy(task: Task, x: Tensor, buffers: Tensor, inputs: Tensor, key: Tensor | None = None) -> Any:
        if key is not None:
            keys.append(int(key))
        return apply(task, x, buffers, inputs, key)

    monkeypatch.setattr(Task, "apply", spy)
    task = Task(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)))
    data = dc.FederatedData.from_arrays([(torch.randn(9, 4), torch.arange(9) % 3) for _ in range(3)])
    method = dc.methods.Ditto(steps=4, batch=None, solver=dc.methods.FedAvg(steps=4, batch=None))
    dc.simulate(task, data, method, rounds=2, mode="loop")
    gradients = 2 * 3 * (4 + 4)  # rounds, clients, steps of the two models
    assert len(set(keys[-gradients:])) == gradients
    assert len(keys) == gradients + 2  # the probe's two come first


def test_places_beyond_those_that_are_numbered_ahead_are_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five places ahead: up to 25 can be counted."""
    whole = AddressedDropout(0.5, 0, False)
    monkeypatch.setattr("descant.task.dropout._AHEAD", 5)
    few = AddressedDropout(0.5, 0, False)
    for shape in ((3, 4), (5, 6), (23, 7), (2, 3, 25)):
        assert few(torch.ones(shape)).equal(whole(torch.ones(shape)))


@pytest.mark.slow
def test_masks_of_many_examples_are_the_same_in_a_compiled_program() -> None:
    layer, many = AddressedDropout(0.5, 0, False), torch.ones(2**14 + 100, 2)
    plain = layer(many)
    layer.uses = 0
    torch._dynamo.reset()
    assert torch.compile(layer)(many).equal(plain)
