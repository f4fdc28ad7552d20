"""Recurrent networks for text."""

from __future__ import annotations

from torch import Tensor, nn

from descant.data import FederatedData
from descant.data.arrays import PARTS
from descant.errors import SettingError, TaskError
from descant.models.shapes import outputs_of


class Recurrent(nn.Module):
    """LSTM layers and a linear layer on the last state, or on every state (`each`).

    Tokens [B, T] are embedded first; inputs [B, T, features] that are embedded already have no embedding here.
    """

    def __init__(
        self, embedding: nn.Embedding | None, features: int, hidden: int, layers: int, outputs: int, each: bool
    ) -> None:
        super().__init__()
        self.embed = embedding
        self.read = nn.LSTM(features, hidden, layers, batch_first=True)
        self.score = nn.Linear(hidden, outputs)
        self.each = each

    def forward(self, inputs: Tensor) -> Tensor:
        states: Tensor = self.read(inputs if self.embed is None else self.embed(inputs))[0]  # [B, T, hidden]
        scores: Tensor = self.score(states if self.each else states[:, -1])
        return scores


def lstm(
    data: FederatedData, embedding: int = 8, hidden: int = 256, layers: int = 2, vocabulary: int | None = None
) -> nn.Module:
    """LSTM layers over tokens, or over vectors [T, features], and a linear layer.

    It predicts after the last token, or after each of them where the targets are sequences of labels.  There are
    as many embeddings as `vocabulary` says, by default one for every token or class there may be in the data.
    """
    for field, value in (("embedding", embedding), ("hidden", hidden), ("layers", layers)):
        if value < 1:
            raise SettingError(f"lstm: {field} = {value!r}: it must be a positive number")
    outputs, each = outputs_of(data), data.classes is not None and data.train.targets.dim() > 1
    shape, vectors = data.input_shape, data.train.inputs.is_floating_point()
    if len(shape) != 1 + vectors:
        kind = "vectors [T, features]" if vectors else "tokens [T]"
        raise TaskError(f"an lstm reads {kind}, and the examples of data {data.name!r} are of shape {list(shape)}")
    if vectors:
        return Recurrent(None, shape[1], hidden, layers, outputs, each)
    parts = [data.part(part).inputs for part in PARTS]
    tokens = 1 + max(int(own.max()) for own in parts if own.numel())
    if vocabulary is not None and vocabulary < tokens:
        raise SettingError(f"lstm: vocabulary = {vocabulary}: it must be at least {tokens}, as the data has tokens")
    words = nn.Embedding(vocabulary or max(tokens, data.classes or 0), embedding)
    return Recurrent(words, embedding, hidden, layers, outputs, each)


def fedplus_sent140(data: FederatedData, vocabulary: int | None = None) -> nn.Module:
    """Fed+'s classifier of tweets: two LSTM layers of 256 over 300-dimensional embeddings, and a linear layer.

    Tweets that come as GloVe vectors [25, 300] keep these as they are, as in the paper (1,098,242 parameters);
    tokens get embeddings that are trained.
    """
    return lstm(data, embedding=300, hidden=256, layers=2, vocabulary=vocabulary)


def shakespeare_lstm(data: FederatedData, vocabulary: int | None = None) -> nn.Module:
    """The next character of a play: embeddings of 8, two LSTM layers of 256 (McMahan et al., 2017)."""
    return lstm(data, embedding=8, hidden=256, layers=2, vocabulary=vocabulary)
