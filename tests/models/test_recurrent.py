"""LSTM models of text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from descant.data import FederatedData
from descant.errors import SettingError, TaskError
from descant.models import lstm

Make = Callable[..., Any]


def by_hand(model: Any, tokens: Tensor) -> Tensor:
    """The scores after every token, from the definition of an LSTM, one gate after the other."""
    p = dict(model.read.named_parameters())
    sequence = model.embed.weight[tokens] if model.embed is not None else tokens
    for layer in range(model.read.num_layers):
        w, u, b, c = (p[f"{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h = torch.zeros(len(tokens), model.read.hidden_size)
        cell, states = h, []
        for t in range(sequence.shape[1]):
            i, f, g, o = (sequence[:, t] @ w.T + b + h @ u.T + c).chunk(4, dim=1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            h = o.sigmoid() * cell.tanh()
            states.append(h)
        sequence = torch.stack(states, dim=1)
    return sequence @ model.score.weight.T + model.score.bias


@pytest.mark.parametrize("tokens", [9, 0], ids=["tokens", "vectors"])
def test_it_is_an_lstm_read_after_the_last_token_or_after_each(make: Make, tokens: int) -> None:
    shape = (6,) if tokens else (6, 5)
    last = make(shape, 3, tokens=tokens)
    model = lstm(last, embedding=4, hidden=7)
    expected = by_hand(model, last.train.inputs)
    torch.testing.assert_close(model(last.train.inputs), expected[:, -1], rtol=1e-4, atol=1e-6)
    if tokens:
        data = make(shape, 3, tokens=tokens, each=True)
        model = lstm(data, embedding=4, hidden=7)
        expected = by_hand(model, data.train.inputs)
        torch.testing.assert_close(model(data.train.inputs), expected, rtol=1e-4, atol=1e-6)


def test_tokens_of_the_test_part_and_classes_have_embeddings() -> None:
    train, test = np.zeros((4, 5), dtype=np.int64), np.full((2, 5), 11)
    data = FederatedData.from_arrays([{"train": (train, np.arange(4)), "test": (test, np.zeros(2, dtype=int))}])
    assert lstm(data).embed.num_embeddings == 12
    data = FederatedData.from_arrays([{"train": (train, np.arange(4) * 10)}])
    assert lstm(data).embed.num_embeddings == 31
    assert lstm(data, vocabulary=50).embed.num_embeddings == 50


def test_what_cannot_be_read_is_refused(make: Make) -> None:
    with pytest.raises(TaskError, match=r"an lstm reads vectors \[T, features\], .* of shape \[5\]"):
        lstm(make((5,), 3))
    with pytest.raises(TaskError, match=r"an lstm reads tokens \[T\], .* of shape \[5, 2\]"):
        lstm(make((5, 2), 3, tokens=4))
    with pytest.raises(SettingError, match=r"lstm: vocabulary = 3: it must be at least"):
        lstm(make((50,), 3, tokens=9), vocabulary=3)
    with pytest.raises(SettingError, match=r"lstm: hidden = 0"):
        lstm(make((5,), 3, tokens=9), hidden=0)
