"""The library is light: torch, numpy and safetensors. Tables, settings and the command line come when used."""

import subprocess
import sys

import pytest

HEAVY = ("polars", "pydantic", "sklearn", "scipy", "typer", "rich", "yaml", "altair", "optuna", "flwr")
A_RUN = """
import numpy as np, torch, descant
data = descant.FederatedData.from_arrays([(np.eye(8, dtype="float32"), np.arange(8) % 2)] * 3)
run = descant.simulate(descant.Task(torch.nn.Linear(8, 2)), data, descant.methods.Ditto(), rounds=1)
run.summary(), run.personal(0), run.shared()
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import descant", id="import"),
        pytest.param(A_RUN, id="simulate", marks=pytest.mark.slow),
        pytest.param("import descant.theory.checks", id="theory", marks=pytest.mark.slow),
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    code += f"\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import descant

    for name in descant.__all__:
        assert getattr(descant, name) is not None
    assert {"aggregators", "attacks", "codecs", "datasets", "methods"} <= set(descant.__all__)
