"""How the work is cut up, executed or padded does not change what comes out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from descant import FederatedData, Run, Task, simulate
from descant.execution import Vmap
from descant.methods import Ditto, FedAvg, FedProx, Local, LpProj, Method, PFedMe
from descant.task import Batch
from tests import held

WORK: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
METHODS = [
    FedAvg(lr=0.1, epochs=2, batch=4),
    FedProx(lr=0.1, epochs=2, batch=4, mu=0.5, weighted=False),
    Local(lr=0.1, epochs=2, batch=5, clip=0.5, weight_decay=0.01),
    Ditto(lr=0.1, epochs=1, batch=2, lam=0.5, solver=FedAvg(**WORK)),
    PFedMe(**WORK, lam=2.0, eta=0.3, R=2),
    LpProj(**WORK, dim=5, p=1.0, R=2),
    LpProj(lr=0.3, batch=3, dim=5, p=2.0, nu=1e-2, cap=8),
]
EVERY_METHOD = pytest.mark.parametrize(
    "method", METHODS, ids=[f"{i}-{method.name}" for i, method in enumerate(METHODS)]
)


def state(run: Run) -> dict[str, Tensor]:
    """Everything that the run ended with."""
    assert run.collapse is None
    return held.everything(run)


def distance(a: Run, b: Run) -> float:
    ours, theirs = state(a), state(b)
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours if ours[name].numel())


def accounts(run: Run) -> Any:
    """What it cost and what happened, without the time that it took."""
    return [{name: v for name, v in row.items() if name != "seconds"} for row in run.history.rounds]


SETTINGS: dict[str, Any] = {"cohort": 11, "stragglers": 0.5}


@pytest.fixture(scope="module")
def thirteen(federation: Any) -> FederatedData:
    """So many clients that those who finish early are left out of the batch."""
    data: FederatedData = federation((6, 1, 9, 4, 13, 2, 7, 3, 11, 5, 8, 1, 10))
    return data


@pytest.mark.few(1)
@EVERY_METHOD
@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_results_do_not_depend_on_the_chunks(run: Any, thirteen: FederatedData, method: Method, chunk: int) -> None:
    whole, cut = (run(method, data=thirteen, chunk=size, rounds=2, **SETTINGS) for size in (13, chunk))
    assert distance(whole, cut) <= 1e-10
    assert accounts(whole) == accounts(cut)


@pytest.mark.few(1)
@EVERY_METHOD
@pytest.mark.parametrize("chunk", [3, 13])
def test_the_loop_and_the_vectorised_program_agree(
    run: Any, thirteen: FederatedData, method: Method, chunk: int
) -> None:
    settings = SETTINGS | {"trainers": "everyone", "drop_last": True, "rounds": 2}
    loop, vmapped = (run(method, data=thirteen, mode=mode, chunk=chunk, **settings) for mode in ("loop", "vmap"))
    assert distance(loop, vmapped) <= 1e-10
    assert accounts(loop) == accounts(vmapped)


@pytest.mark.few(1)
@EVERY_METHOD
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(
    run: Any, thirteen: FederatedData, method: Method
) -> None:
    first, again, other = (run(method, data=thirteen, **SETTINGS | {"seed": seed}) for seed in (1, 1, 2))
    assert accounts(first) == accounts(again)
    assert all(torch.equal(a, b) for a, b in zip(state(first).values(), state(again).values(), strict=True))
    assert distance(first, other) > 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize("work", [{"steps": 4}, {"epochs": 2}])
@pytest.mark.parametrize("batch", [None, 3])
def test_the_size_of_another_client_does_not_matter(
    run: Any, federation: Any, work: dict[str, Any], batch: int | None
) -> None:
    """A larger client beside them lengthens the padding of all others, and changes none."""
    method = Local(lr=0.1, batch=batch, **work)
    small, large = (run(method, data=federation((6, 1, 9, last))) for last in (2, 40))
    assert float((held.personal(small) - held.personal(large))[:3].abs().max()) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [Local(**WORK), LpProj(**WORK, dim=0)], ids=lambda m: m.name)
def test_a_client_learns_the_same_whoever_else_takes_part(run: Any, federation: Any, method: Method) -> None:
    """Its draws depend on the seed, the role, the round and itself: not on the cohort, nor on who exists."""
    everyone = held.personal(run(method, cohort=None))
    fewer = held.personal(run(method, cohort=None, data=federation((6, 1, 9))))
    assert float((everyone[:3] - fewer).abs().max()) <= 1e-12
    some = run(method, cohort=3, rounds=1)
    took_part = some.history.spent[1]["gradients"] > 0
    alone = held.personal(run(method, cohort=None, rounds=1))
    assert took_part.sum() == 3
    assert float((held.personal(some) - alone)[torch.from_numpy(took_part)].abs().max()) <= 1e-12


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    extra=st.integers(1, 4),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 100),
)
def test_masked_rows_of_garbage_never_change_a_gradient(
    task: Task, lengths: list[int], extra: int, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    K, width = len(lengths), max(lengths)

    def batch_of(width: int, garbage: float) -> Batch:
        mask = torch.arange(width) < torch.tensor(lengths)[:, None]
        inputs = torch.full((K, width, 4), garbage, dtype=torch.float64)
        targets = torch.full((K, width), 2)
        for k, n in enumerate(lengths):
            inputs[k, :n], targets[k, :n] = examples[k, :n], labels[k, :n]
        return Batch(inputs, targets, mask, torch.arange(K))

    examples = torch.randn(K, width, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (K, width), generator=generator)
    x = task.start() + torch.randn(K, task.dim, generator=generator, dtype=torch.float64)
    everyone, no_buffers = torch.ones(K, dtype=torch.bool), torch.zeros(K, 0)
    plain, padded = (
        Vmap(task).grads(x, no_buffers, batch, everyone, task.objective, ())[0]
        for batch in (batch_of(width, 0.0), batch_of(width + extra, scale))
    )
    assert float((plain - padded).abs().max()) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_evaluation_does_not_depend_on_the_chunks_either(run: Any, mode: str) -> None:
    whole, cut = (run(Local(**WORK), mode=mode, chunk=chunk, evaluate=1) for chunk in (7, 2))
    for round, columns in whole.history.evaluated["personal"].items():
        for name, values in columns.items():
            assert abs(values - cut.history.evaluated["personal"][round][name]).max() <= 1e-10, (round, name)


def test_dropout_and_batch_norm_do_not_depend_on_the_chunks(data: FederatedData) -> None:
    """BatchNorm makes zeros of two equal examples, but for rounding, and the slope of ReLU jumps there: what it is
    follows from the last bit, which differs between versions of torch. Tanh is smooth."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 3))
    task, method = Task(model.double()), Ditto(lr=0.1, steps=3, batch=2, lam=0.5, solver=FedAvg(**WORK))
    big = FederatedData.from_arrays(
        [{"train": (X.repeat(2, 1), y.repeat(2))} for X, y in map(data.train.client, range(7))], classes=3
    )
    settings: dict[str, Any] = {"rounds": 2, "seed": 5, "drop_last": True}
    runs = [
        simulate(task, big, method, chunk=chunk, mode=mode, **settings)  # type: ignore[arg-type]
        for chunk, mode in [(7, "vmap"), (2, "vmap"), (7, "loop")]
    ]
    assert distance(runs[0], runs[1]) <= 1e-10
    assert distance(runs[0], runs[2]) <= 1e-10
