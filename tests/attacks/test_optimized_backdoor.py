"""Triggers that attackers look for: signed steps on the model, against a loop over examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from descant import FederatedData, Task, simulate
from descant.attacks import Backdoor, OptimizedBackdoor, Seen
from descant.draws import uniform
from descant.methods import Ditto, FedAvg
from tests.attacks.backdoors import HOW, WHO, context, last_success, net, pictures, stamped
from tests.attacks.oracle import SEED, Vector


def signed_steps(task: Task, seen: Vector, start: Vector, places: list[int], attack: OptimizedBackdoor) -> Vector:
    """The search for a trigger on a linear model, example by example; its best pattern."""
    W, b = (p.detach().numpy() for p in task.model.parameters())
    low, high = seen.min(), seen.max()
    order = sorted(range(len(seen)), key=lambda i: float(uniform(SEED, "optimized-backdoor", i)))
    inputs = [seen[i] for i in order[: attack.examples]]

    def slope(trigger: Vector) -> tuple[Vector, float]:
        total, losses = np.zeros(len(places)), []
        for x in inputs:
            scores = W @ stamped(x, places, trigger) + b
            p = np.exp(scores - scores.max())
            p /= p.sum()
            losses.append(-np.log(p[attack.target]))
            p[attack.target] -= 1
            total += (W.T @ p)[places]
        return total, float(np.mean(losses))

    tried = [start]
    for _ in range(attack.steps):
        step = attack.rate * (high - low) * np.sign(slope(tried[-1])[0])
        tried.append(np.clip(tried[-1] - step, low, high))
    return min(tried, key=lambda trigger: slope(trigger)[1])


@pytest.mark.parametrize("examples", [3, 256])
@pytest.mark.parametrize("steps", [1, 4, 30])
def test_a_trigger_is_looked_for_by_signed_steps_on_the_model(
    labelled: FederatedData, linear: Task, steps: int, examples: int
) -> None:
    attack = OptimizedBackdoor(target=1, features=(1, 2), steps=steps, rate=0.03, examples=examples)
    ctx = context(linear, round=1)
    state, poisoned = attack.first(ctx, labelled, WHO), attack.poison(ctx, labelled, WHO)
    sight = lambda: Seen(linear, linear.start()[None], linear.buffer_start()[None])  # noqa: E731
    found = attack.adapt(ctx, state, poisoned, WHO, sight)
    assert found is not None
    seen = np.concatenate([poisoned.train.client(k)[0].numpy() for k in WHO.tolist()])
    start = state["trigger"].numpy()
    expected = signed_steps(linear, seen, start, [1, 2], attack)
    np.testing.assert_allclose(found["trigger"].numpy(), expected, rtol=1e-12)
    assert not np.array_equal(found["trigger"].numpy(), start)
    again = attack.recall(ctx, found, poisoned, WHO)
    assert torch.equal(again.train.targets, poisoned.train.targets), "labels stay"
    assert torch.equal(attack.recall(ctx, state, again, WHO).train.inputs, poisoned.train.inputs), "and can go back"
    later = replace(ctx, round=2)
    assert replace(attack, every=2).adapt(later, state, poisoned, WHO, sight) is None


@pytest.mark.parametrize("batched", [True, False], ids=["in one program", "one by one"])
def test_several_models_count_the_same(labelled: FederatedData, batched: bool) -> None:
    """Of a method without a shared model, the loss is the mean over the attackers' own."""
    torch.manual_seed(3)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double())
    x = task.start() + torch.randn(3, task.dim, dtype=torch.float64)
    seen = Seen(task, x, x.new_zeros(3, 0), batched)
    inputs = labelled.test.inputs
    by_module = torch.stack([task.module(row)(inputs) for row in x])
    torch.testing.assert_close(seen.outputs(inputs), by_module, rtol=1e-12, atol=1e-12)
    attack, ctx = OptimizedBackdoor(size=2, steps=1, rate=1e-3), context(task, round=1)
    state = attack.first(ctx, labelled, WHO)
    found = attack.adapt(ctx, state, labelled, WHO, lambda: seen)
    assert found is not None

    def loss(trigger: torch.Tensor) -> float:
        bearing, wanted = attack.stamp(attack.theirs(labelled, WHO), trigger), torch.zeros(100, dtype=torch.int64)
        losses = [nn.functional.cross_entropy(task.module(row)(bearing), wanted) for row in x]
        return float(torch.stack(losses).mean().detach())

    reach = 1e-3 * float(attack.theirs(labelled, WHO).max() - attack.theirs(labelled, WHO).min())
    for i in range(2):  # the sign of the slope, by differences
        off = torch.zeros(2, dtype=torch.float64)
        off[i] = 1e-6
        rises = loss(state["trigger"] + off) > loss(state["trigger"] - off)
        moved = float(found["trigger"][i] - state["trigger"][i])
        assert moved == pytest.approx(-reach if rises else reach, rel=1e-6)


def test_the_best_pattern_on_the_way_counts(labelled: FederatedData) -> None:
    """Steps as long as the range overshoot: the pattern is never worse than the one before."""
    stayed = 0
    for seed in range(12):
        torch.manual_seed(seed)
        task = Task(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double())
        attack, ctx = OptimizedBackdoor(size=2, steps=2, rate=1.0), context(task, round=1)
        state, theirs = attack.first(ctx, labelled, WHO), attack.theirs(labelled, WHO)
        seen = Seen(task, task.start()[None], task.buffer_start()[None])
        found = attack.adapt(ctx, state, labelled, WHO, lambda seen=seen: seen)  # type: ignore[misc]
        assert found is not None
        before, after = (
            float(task.loss(seen.outputs(attack.stamp(theirs, s["trigger"]))[0], torch.zeros(100).long()).mean())
            for s in (state, found)
        )
        same = torch.equal(found["trigger"], state["trigger"])
        assert after == before if same else after < before
        stayed += same
    assert 0 < stayed < 12, "both happen"


@pytest.mark.slow
def test_a_trigger_that_was_looked_for_works_better_on_personal_models() -> None:
    """Ditto's personal models hold a fixed pattern off, and less so one that follows the shared model."""
    data = pictures()
    method = Ditto(lr=0.3, steps=5, lam=0.5, solver=FedAvg(lr=0.3, steps=5, batch=None))
    how = HOW | {"rounds": 20, "evaluate": 20, "malicious": 2}
    fixed, looked = (
        simulate(net(), data, method, attacks=attack, **how)
        for attack in (Backdoor(size=2, value=1.0), OptimizedBackdoor(size=2))
    )
    assert last_success(looked) > last_success(fixed) + 0.1
    assert last_success(looked, "shared") >= last_success(fixed, "shared")
