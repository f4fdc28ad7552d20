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


COMPARED = """
import sys
for name in ("altair", "vl_convert", "jinja2"):
    sys.modules[name] = None  # to import it is an error
import numpy as np, torch, descant
data = descant.FederatedData.from_arrays([(np.eye(8, dtype="float32"), np.arange(8) % 2)] * 3)
task = descant.Task(torch.nn.Linear(8, 2))
compared = descant.compare(task, data, ["ditto", "local"], rounds=1, seeds=2, mode="vmap")
compared.table(), compared.differences(), compared.verdict(), repr(compared), compared._repr_html_()
try:
    compared.report()
except ImportError:
    print("charts alone need altair")
"""


def test_tables_of_a_comparison_need_no_charts() -> None:
    found = subprocess.run([sys.executable, "-c", COMPARED], capture_output=True, text=True)
    assert found.stdout.strip() == "charts alone need altair", found.stderr


def test_a_report_says_what_it_takes() -> None:
    import inspect

    import descant
    from descant.report.making import report

    named = [list(inspect.signature(each).parameters) for each in (descant.report, report)]
    assert named[0] == named[1]


def test_every_public_name_is_there() -> None:
    import descant

    for name in descant.__all__:
        assert getattr(descant, name) is not None
    assert {"aggregators", "attacks", "codecs", "datasets", "methods"} <= set(descant.__all__)
