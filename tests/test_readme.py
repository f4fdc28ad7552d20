"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import descant as dc

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(BLOCKS[0].replace("rounds=50", "rounds=3"), names)
    assert dc.load("runs/first").summary()["rounds"] == 3
    for figure in re.findall(r'summary\(\)\["(.*?)"\]', BLOCKS[0]):
        assert figure in dc.load("runs/first").summary()


def test_the_new_method_trains_and_shares_its_mean() -> None:
    names: dict[str, object] = {}
    exec(BLOCKS[-1], names)
    method = names["MeanRegularized"](lam=0.1, steps=5)  # type: ignore[operator]
    data = dc.data.synthetic(clients=8, samples=40)
    run = dc.simulate(dc.Task(dc.models.linear(data)), data, method, rounds=10)
    before, after = (run.history.figure("personal", t, "train_loss")["mean"] for t in (0, 10))
    assert after < before
    state = run._simulation
    assert state is not None
    assert state.server.state["w"].allclose(state.store.leaves["v"].mean(0), atol=1e-6)
