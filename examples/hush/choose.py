"""Hush and its rivals with the same number of trials: write settings files for `descant compare`.

    python examples/hush/choose.py trials mnist-20 > examples/hush/mnist-20.yaml   eight settings a method, one seed
    descant compare examples/hush/mnist-20.yaml --out runs/trials --set device=cuda
    python examples/hush/choose.py best mnist-20 runs/trials > best.yaml           the best of each, five seeds
    descant compare best.yaml --out runs/mnist-20 --set device=cuda
    python examples/hush/table.py runs/mnist-20                                    beside Ditto, paired over seeds

The files of trials lie here, one for each data set. `kinds` in the place of `trials` writes what is tried of Hush
itself: its subspaces, bits, buckets, momentum and tie, one change at a time; table.py reads their runs, too.

Each method is tried with four rates and two values of what it is known by, and the setting with the best validation
accuracy is kept, of a seed that is not among the five. All take 20 gradients a client and round for each model that
they train; those that train one take 40. Bytes are real, up and down.
"""

from __future__ import annotations

from typing import Any

RATES, SEED, STEPS, BATCH = (0.02, 0.05, 0.1, 0.2), 100, 20, 10
BIG = (0.005, 0.01, 0.02, 0.05)  # rates of convolutional and recurrent networks
MLP = {"name": "mlp", "hidden": [100]}
FASHION = {"name": "fashion-mnist", "test": "official", "valid": 0.2, "seed": "run"}
# Data, model, how many clients take part in a round, rounds, the parameters d of the model, and the rates.
DATA: dict[str, tuple[dict[str, Any], Any, float, int, int, tuple[float, ...]]] = {
    "mnist-20": (
        {"name": "mnist-by-writer", "most": 20, "mean": 0.1307, "std": 0.3081, "seed": "run"},
        *(MLP, 0.2, 40, 79_510, RATES),
    ),
    "mnist-60": (
        {"name": "mnist-by-writer", "most": 60, "mean": 0.1307, "std": 0.3081, "seed": "run"},
        *(MLP, 0.2, 40, 79_510, RATES),
    ),
    "fashion-iid": (
        FASHION | {"partition": {"name": "iid", "clients": 100}, "most": 20},
        *(MLP, 0.2, 40, 79_510, RATES),
    ),
    "fashion-dirichlet": (
        FASHION | {"partition": {"name": "dirichlet", "clients": 100, "alpha": 0.5}, "most": 60},
        *(MLP, 0.2, 40, 79_510, RATES),
    ),
    "fashion-shards": (
        FASHION | {"partition": {"name": "labels", "clients": 100, "labels": 2}, "most": 60},
        *(MLP, 0.2, 40, 79_510, RATES),
    ),
}
