"""Modules whose forward pass draws, or keeps state, where no address and no client reaches: refused by name."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.errors import TaskError
from descant.execution import choose
from descant.task import Task


class Scorer(nn.Module):
    """A linear layer, for others to put something in front of."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)

    def before(self, inputs: Tensor) -> Tensor:
        return inputs

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(self.before(inputs))
        return scores


class FunctionalDropout(Scorer):
    def before(self, inputs: Tensor) -> Tensor:
        return functional.dropout(inputs, 0.5, self.training)


class Noisy(Scorer):
    def before(self, inputs: Tensor) -> Tensor:
        return inputs + 0.1 * torch.rand(4)


class NumpyNoise(Scorer):
    """Draws that torch's generator knows nothing of."""

    def before(self, inputs: Tensor) -> Tensor:
        return inputs + torch.tensor(np.random.default_rng().normal(size=4), dtype=inputs.dtype)


class Counting(Scorer):
    """State in a plain attribute."""

    calls = 0

    def before(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return inputs * self.calls


class MovingAverage(Scorer):
    """State in a buffer, with a gradient in it too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(3))
        self.average: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(inputs)
        if self.training:
            self.average.mul_(0.9).add_(0.1 * scores.mean(0))
        return scores - self.average


class Replacing(MovingAverage):
    """The same, by a new tensor instead of in place."""

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(inputs)
        self.average = self.average + 1
        return scores


class Sentence(nn.Module):
    """Tokens, a layer over them, scores."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embed, self.layer, self.score = nn.Embedding(11, 8), layer, nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens)
        h = self.layer(h, h, h) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(h)
        scores: Tensor = self.score((h[0] if isinstance(h, tuple) else h).mean(1))
        return scores


class Encoded(nn.Module):
    """A positional encoding: a float buffer that nobody changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.linspace(-1, 1, 4))
        self.positions: Tensor
        self.score = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(inputs + self.positions)
        return scores


VECTORS = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.arange(3)
TOKENS = torch.randint(0, 11, (3, 6), generator=torch.Generator().manual_seed(0)), torch.arange(3)


@pytest.mark.parametrize("mode", ["auto", "vmap", "loop"])
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (FunctionalDropout(), r"^FunctionalDropout draws"),
        (
            nn.Sequential(nn.Sequential(nn.Linear(4, 4), FunctionalDropout())),
            r"^FunctionalDropout \('0\.1'\) draws",
        ),
        (Noisy(), r"^Noisy draws"),
        (NumpyNoise(), r"^NumpyNoise gives different outputs for the same inputs"),
        (nn.Sequential(nn.Linear(4, 4), Counting()), r"^Counting \('1'\) gives different outputs"),
    ],
)
def test_a_module_that_draws_by_itself_is_refused_by_name(model: nn.Module, name: str, mode: str) -> None:
    with pytest.raises(TaskError, match=name):
        choose(Task(model), *VECTORS, mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.LSTM(8, 8, 2, batch_first=True, dropout=0.3), r"^LSTM \('layer'\) draws"),
        (nn.GRU(8, 8, 2, batch_first=True, dropout=0.3), r"^GRU \('layer'\) draws"),
        (nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True), r"^MultiheadAttention \('layer'\) draws"),
        (
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True),
            r"^MultiheadAttention \('layer\.self_attn'\) draws",
        ),
    ],
)
def test_layers_that_draw_inside_are_refused_by_name(layer: nn.Module, name: str) -> None:
    with pytest.raises(TaskError, match=name):
        choose(Task(Sentence(layer)), *TOKENS)


def test_the_dropout_around_attention_is_addressed_where_attention_itself_draws_nothing() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    layer.self_attn.dropout = 0.0
    task = Task(Sentence(layer))
    choose(task, *TOKENS)
    x, none = task.start(), torch.empty(0)
    one, again, other = (task.apply(x, none, TOKENS[0], torch.tensor(key))[0] for key in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.isclose(one, other).any()


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.1), nn.FeatureAlphaDropout(0.1), nn.RReLU()])
def test_layers_that_cannot_be_addressed_are_refused_at_once(layer: nn.Module) -> None:
    name = rf"{type(layer).__name__} \('1\.0'\) draws random numbers that cannot be addressed: use nn\.Dropout"
    with pytest.raises(TaskError, match=name):
        Task(nn.Sequential(nn.Linear(4, 4), nn.Sequential(layer)))


@pytest.mark.parametrize("make", [MovingAverage, Replacing])
def test_a_buffer_that_the_forward_pass_changes_is_refused_by_name(make: type[nn.Module]) -> None:
    with pytest.raises(TaskError, match=r"changes the buffer '1\.average', which no client owns"):
        choose(Task(nn.Sequential(nn.Linear(4, 4), make())), *VECTORS)


def test_a_counter_in_a_buffer_is_state_too() -> None:
    class Steps(Scorer):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.tensor(0))
            self.steps: Tensor

        def before(self, inputs: Tensor) -> Tensor:
            self.steps += 1
            return inputs

    with pytest.raises(TaskError, match="changes the buffer 'steps'"):
        choose(Task(Steps()), *VECTORS)


def test_a_refused_module_has_not_been_changed() -> None:
    model = MovingAverage()
    before = deepcopy(model.state_dict())
    with pytest.raises(TaskError):
        choose(Task(model), *VECTORS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_constant_buffer_is_used_and_neither_billed_nor_averaged() -> None:
    torch.manual_seed(0)
    model = Encoded()
    task = Task(model)
    assert task.dim == 15 and task.buffer_layout.dim == 0
    data = dc.FederatedData.from_arrays([(torch.randn(9, 4), torch.arange(9) % 3) for _ in range(2)])
    run = dc.simulate(task, data, dc.methods.FedAvg(weighted=False, lr=0.3, steps=2, batch=None), rounds=1)
    (row,) = run.rounds.to_dicts()
    assert row["bytes_up"] == row["bytes_down"] == 2 * 4 * 15
    trained = []
    for k in range(2):
        own = deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.3)
        for _ in range(2):
            optimizer.zero_grad()
            inputs, targets = data.train.client(k)
            functional.cross_entropy(own(inputs), targets).backward()
            optimizer.step()
        trained.append(own.state_dict())
    shared = run.shared(round="last").state_dict()
    assert torch.equal(shared["positions"], model.positions)
    for name in ("score.weight", "score.bias"):
        torch.testing.assert_close(shared[name], (trained[0][name] + trained[1][name]) / 2)


class Attending(nn.Module):
    """A transformer's layer over four tokens of one feature each, widened to four."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(1, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.5, batch_first=True)
        self.score = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(self.layer(self.widen(inputs[..., None])).mean(1))
        return scores


class Reading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.score = nn.GRU(1, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(self.read(inputs[..., None])[0][:, -1])
        return scores


@pytest.mark.parametrize(
    ("model", "said", "layer"),
    [
        (
            Attending,
            r"MultiheadAttention \('layer.self_attn'\) draws .*: set model.layer.self_attn.dropout = 0.0",
            "layer.self_attn",
        ),
        (
            Reading,
            r"GRU \('read'\) draws .*: set model.read.dropout = 0.0, or write its layers as nn.GRU of one layer",
            "read",
        ),
    ],
)
def test_the_dropout_inside_a_layer_of_torch_is_refused_with_a_remedy_that_works(
    model: type[nn.Module], said: str, layer: str
) -> None:
    made = model()
    inputs, targets = torch.randn(3, 4), torch.tensor([0, 1, 2])
    with pytest.raises(TaskError, match=said):
        choose(Task(made), inputs, targets)
    made.get_submodule(layer).dropout = 0.0
    execution, _ = choose(Task(made), inputs, targets)
    assert execution.task.draws == (model is Attending)  # its dropout outside the attention stays, and is addressed
