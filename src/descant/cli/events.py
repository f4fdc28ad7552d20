"""Progress and results as JSON lines on standard output, for machines.

Every line has `event`: "round", "health", "evaluated", "collapse" or "finished" (with the run's whole summary), and
"note" (of a comparison: what is not equal).
"""

from __future__ import annotations

import json
from typing import Any

from descant.engine import Collapse, Evaluated, HealthRecord, Record, RoundRecord
from descant.experiment import Run
from descant.files import plain


def event_of(record: Record) -> dict[str, Any] | None:
    """A record as an event; None where it says nothing new."""
    match record:
        case RoundRecord():
            return {"event": "round"} | {k: v for k, v in vars(record).items() if k != "figures"} | record.figures
        case Evaluated():
            means = {f"{part}_loss": record.mean(part, loss=True) for part in record.loss}
            means |= {f"{part}_metric": record.mean(part) for part in record.metric}
            means |= {f"{part}_attack_success": record.mean_success(part) for part in record.success}
            return {"event": "evaluated", "round": record.round, "model": record.model} | means
        case HealthRecord():
            jump, distance = (float(values[record.counted].mean()) for values in (record.jump, record.distance))
            return {"event": "health", "round": record.round, "jump": jump, "distance": distance}
        case Collapse():
            return {"event": "collapse"} | vars(record)
        case _:
            return None


def finished_event(run: Run) -> dict[str, Any]:
    about = {"label": run.config["label"], "seed": run.config["seed"]}
    return {"event": "finished"} | about | {"summary": run.summary()}


def emit(event: dict[str, Any]) -> None:
    print(json.dumps(plain(event), allow_nan=False), flush=True)
