"""Settings of a run as a file holds them, validated before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from descant.catalog import build
from descant.data import FederatedData
from descant.draws import seed_of
from descant.engine import Evaluation, Record
from descant.errors import SettingError, unknown
from descant.execution import Mode
from descant.experiment.journal import Journal
from descant.experiment.run import Run
from descant.experiment.simulate import simulate
from descant.task import LOSSES, Task


def _named(spec: Any) -> Any:
    """A bare name stands for a mapping with that name alone."""
    return {"name": spec} if isinstance(spec, str) else spec


Spec = Annotated[dict[str, Any], BeforeValidator(_named)]


class EvaluationSettings(BaseModel):
    """When and what to evaluate (`descant.Evaluation`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(default=1, ge=1)
    parts: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")
    models: tuple[Literal["personal", "shared", "selected"], ...] = ("personal", "shared")


def _every(evaluate: Any) -> Any:
    """A number stands for how often to evaluate."""
    return {"every": evaluate} if isinstance(evaluate, int) else evaluate


class RunSettings(BaseModel):
    """One run. The names are those of `descant.simulate`; data, model, method and aggregator are named.

    `label` is the run's name in tables and charts. `model` is made to fit the data, and its first parameters are
    drawn as the seed says. A data set's `seed: run` draws it anew for every seed of the run; by default its own
    seed stays the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str | None = None
    data: Spec
    model: Spec = {"name": "linear"}
    loss: str = "cross_entropy"
    buffers: Literal["shared", "local"] = "shared"
    method: Spec
    rounds: int = Field(ge=1)
    cohort: int | float | None = None
    seed: int = Field(default=0, ge=0)
    sampling: Literal["uniform", "size"] = "uniform"
    trainers: Literal["cohort", "everyone"] = "cohort"
    own_start: bool = False
    stragglers: float = Field(default=0.0, ge=0, le=1)
    drop_last: bool = False
    nonfinite: Literal["drop", "keep"] = "drop"
    evaluate: Annotated[EvaluationSettings, BeforeValidator(_every)] = EvaluationSettings()
    aggregator: Spec = {"name": "mean"}
    mode: Mode = "auto"
    chunk: int | None = Field(default=None, ge=1)
    device: str = "cpu"
    threads: int | None = Field(default=None, ge=1)
    store: Literal["memory", "disk"] = "memory"
    commit: int | None = Field(default=None, ge=1)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validated settings; what is wrong is said by field, with its value."""
        for field in values:
            if field not in cls.model_fields:
                raise unknown("setting", field, cls.model_fields)
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            raise SettingError("\n".join(_explain(problem) for problem in error.errors())) from None
        if settings.loss not in LOSSES:
            raise unknown("loss", settings.loss, LOSSES)
        build("methods", settings.method)  # a mistake in these is found now, not after the data is loaded
        build("aggregators", settings.aggregator)
        Evaluation(**settings.evaluate.model_dump())
        return settings

    def federated_data(self) -> FederatedData:
        spec = self.data | ({"seed": self.seed} if self.data.get("seed") == "run" else {})
        return _load(dumps(spec, sort_keys=True))

    def task(self, data: FederatedData) -> Task:
        """The task on some data; its model starts as the run's seed says."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(self.seed, "model"))
            model = build("models", self.model, data)
        return Task(model, self.loss, buffers=self.buffers)

    def execute(
        self,
        out: Path | None = None,
        *,
        overwrite: bool = False,
        progress: Callable[[Record], None] | None = None,
    ) -> Run:
        """Run it, and leave it in the folder `out`."""
        settings = self.model_dump(mode="json")
        journal = Journal.claim(out, overwrite, settings) if out is not None else None
        data = self.federated_data()
        kept = ("rounds", "cohort", "seed", "sampling", "trainers", "own_start", "stragglers", "drop_last")
        how = ("nonfinite", "mode", "chunk", "device", "threads", "store", "commit", "label")
        run = simulate(
            self.task(data),
            data,
            build("methods", self.method),
            **{name: getattr(self, name) for name in (*kept, *how)},
            evaluate=Evaluation(**self.evaluate.model_dump()),
            aggregator=build("aggregators", self.aggregator),
            out=journal,
            progress=progress,
        )
        run.config["settings"] = settings
        return run


@lru_cache(maxsize=2)
def _load(spec: str) -> FederatedData:
    """The data that a spec names; the cells of a grid share it."""
    data: FederatedData = build("datasets", loads(spec))
    return data


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"the setting '{where}' is missing"
    message = problem["msg"]
    return f"{where} = {problem['input']!r}: {message[0].lower()}{message[1:]}"


def read_settings(path: Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """The settings in a YAML file, with overrides such as 'method.lam=0.1'."""
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise SettingError(f"{path} must hold settings, as in 'rounds: 50'")
    for override in overrides or []:
        _override(values, override)
    return values


def _override(values: dict[str, Any], override: str) -> None:
    where, equals, text = override.partition("=")
    if not equals or not where:
        raise SettingError(f"--set {override}: write it as field=value, as in method.lam=0.1")
    *parents, last = where.split(".")
    for parent in parents:
        inner = values.get(parent)
        inner = values[parent] = {} if inner is None else {"name": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict):
            raise SettingError(f"--set {override}: '{parent}' is {inner!r}, which has no fields")
        values = inner
    values[last] = yaml.safe_load(text)
