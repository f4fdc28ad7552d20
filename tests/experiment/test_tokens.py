"""Numbers that an embedding has no row for are refused before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.errors import TaskError
from descant.experiment import tokens

ROWS = 50


class Words(nn.Module):
    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(ROWS, 4, padding_idx=padding)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.embed(x).mean(1))
        return out


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(ROWS, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.bag(x))
        return out


class Table(nn.Module):
    """A column of floats is a category, looked up by a function; the others are numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.Parameter(torch.randn(ROWS, 4))
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = functional.embedding(x[:, 0].long(), self.kinds)
        out: Tensor = self.out(torch.cat([found, x[:, 1:]], 1))
        return out


class Pairs(nn.Module):
    """The row follows from two places: no example asks for the largest of both."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(ROWS, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.embed(x[:, 0] * 10 + x[:, 1])
        return out


def words(number: int | None = None, part: str = "train", client: int = 1) -> dc.FederatedData:
    """Words of three clients, one of which is another number."""
    g = torch.Generator().manual_seed(0)
    sizes = {"train": 5, "valid": 3, "test": 0 if part == "train" else 2}
    parts = {}
    for name, size in sizes.items():
        x, y = torch.randint(ROWS, (3 * size, 6), generator=g), torch.arange(3 * size) % 3
        if number is not None and name == part:
            x[client * size + 1, 2] = number
        parts[name] = dc.data.Part(x, y, torch.arange(4) * size)
    return dc.FederatedData(**parts, classes=3, clients=("ann", "bob", "eve"))  # type: ignore[arg-type]


def run(model: nn.Module, data: dc.FederatedData, **settings: object) -> dc.Run:
    call = {"rounds": 1, "mode": "vmap"} | settings
    return dc.simulate(dc.Task(model), data, "fedavg", **call)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["vmap", "loop", "auto"])
@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize(("number", "said"), [(53, "give it 54 rows or more"), (-1, "number inputs from 0 on")])
def test_a_word_without_a_row_is_refused_by_name(
    mode: Literal["vmap", "loop", "auto"], part: str, number: int, said: str
) -> None:
    match = (
        rf"the embedding 'embed' has the rows 0 to 49, and inputs ask for {number} \(client 'bob', {part}\): {said}"
    )
    with pytest.raises(TaskError, match=match):
        run(Words(), words(number, part), mode=mode)


@pytest.mark.parametrize("client", [0, 1, 2])
@pytest.mark.parametrize("make", [Words, Bag, lambda: Words(padding=0)])
def test_every_client_and_kind_of_embedding(make: Callable[[], nn.Module], client: int) -> None:
    name = ("ann", "bob", "eve")[client]
    with pytest.raises(TaskError, match=rf"'(embed|bag)' has .* inputs ask for 50 \(client '{name}', train\)"):
        run(make(), words(ROWS, client=client), mode="auto")


def test_categories_among_floats() -> None:
    x, y = torch.randn(12, 3), torch.arange(12) % 3
    x[:, 0] = torch.arange(12)
    x[:, 1] = 1000.0  # no category: it may be any number
    clients = {"ann": (x, y), "bob": (x.clone(), y)}
    assert run(Table(), dc.FederatedData.from_arrays(clients)).rounds.height
    clients["bob"][0][:, 0] += 45
    with pytest.raises(TaskError, match=r"the embedding 'kinds' has .* \(client 'bob', "):
        run(Table(), dc.FederatedData.from_arrays(clients))


def test_what_no_example_asks_for_is_not_refused() -> None:
    x, y = torch.tensor([[4, 0], [0, 40], [1, 2]] * 4), torch.arange(12) % 3
    data = dc.FederatedData.from_arrays({"ann": (x, y), "bob": (x, y)})
    assert run(Pairs(), data).rounds.height
    x = torch.cat([x, torch.tensor([[5, 0]])])
    data = dc.FederatedData.from_arrays({"ann": (x, y := torch.arange(13) % 3), "bob": (x[:12], y[:12])})
    with pytest.raises(TaskError, match=r"ask for 50 \(client 'ann'"):
        run(Pairs(), data)


@pytest.mark.parametrize("make", [Words, lambda: Words(padding=0), lambda: Words(padding=49)])
def test_right_data_trains_as_before(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers of the process are as they would be without the check."""
    runs, states = [], []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(run(make(), words(49)))
        states.append(torch.get_rng_state())
        monkeypatch.setattr("descant.experiment.together.check_tokens", lambda *_: None)
    assert runs[0].clients.equals(runs[1].clients) and torch.equal(*states)


def test_a_model_without_embeddings_reads_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    look = tokens._look

    def counted(task: dc.Task, inputs: Tensor) -> object:
        looked.append(len(inputs))
        return look(task, inputs)

    monkeypatch.setattr(tokens, "_look", counted)
    data = dc.FederatedData.from_arrays([(torch.randn(20, 4), torch.arange(20) % 3)] * 2)
    run(nn.Linear(4, 3), data)
    assert looked == [1] and "extremes" not in vars(data.train)
    looked.clear()
    run(Words(), words())
    assert looked == [1, 4]  # the ends of train and of valid; test is empty


def test_words_of_newcomers_count() -> None:
    with pytest.raises(TaskError, match=r"ask for 60 \(client 'ann', train\)"):
        run(Words(), words(60, client=0), newcomers=["ann"])


def test_mapped_words_and_a_resumed_run(tmp_path: Path) -> None:
    mapped = words(53, "test").mapped(tmp_path / "data")
    with pytest.raises(TaskError, match=r"ask for 53 \(client 'bob', test\)"):
        run(Words(), mapped)
    out = tmp_path / "run"

    class StopError(Exception):
        pass

    def stop(_: object) -> None:
        if (out / "journal").is_dir() and any((out / "journal").glob("commit-*")):
            raise StopError

    with pytest.raises(StopError):
        run(Words(), words(), rounds=4, commit=1, out=out, progress=stop)
    with pytest.raises(TaskError, match=r"ask for 53 \(client 'bob', train\)"):
        dc.resume(out, dc.Task(Words()), words(53))
    assert dc.resume(out, dc.Task(Words()), words()).rounds.height
