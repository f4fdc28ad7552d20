"""The modules that a run's models are put into: whether one is like the run's, and how to build it without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from descant.catalog import build
from descant.data import FederatedData, Part
from descant.errors import SettingError, TaskError
from descant.experiment.identity import model_fingerprint
from descant.files import dtype_of
from descant.files import name_of as dtype_name
from descant.importing import importing
from descant.models.shapes import one_logit


def fill(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Put numbers into a module, by name."""
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, value in values.items():
            named[name].copy_(value)


def check_module(model: nn.Module, expected: Mapping[str, Tensor], fingerprint: str | None) -> None:
    """Refuse a module whose tensors, layers or code are not those of the run's."""
    found = {name: (list(t.shape), t.dtype) for name, t in (*model.named_parameters(), *model.named_buffers())}
    wanted = {name: (list(t.shape), t.dtype) for name, t in expected.items()}
    for name in dict.fromkeys((*wanted, *found)):
        if found.get(name) != wanted.get(name):
            is_, was = (_said(of.get(name)) for of in (found, wanted))
            raise SettingError(
                f"model = {type(model).__name__}(...): it is not like the run's: '{name}' is {is_}, and was {was}"
            )
    if fingerprint is not None and model_fingerprint(model) != fingerprint:
        raise SettingError(
            f"model = {type(model).__name__}(...): its tensors are like the run's, but its layers, their settings "
            "or the code of its forward differ"
        )


def example_of(data: FederatedData) -> dict[str, Any]:
    """What an example looks like, for whoever has to build a model without the data."""
    parts = [data.part(part) for part in ("train", "valid", "test")]
    inputs, targets = data.train.inputs, data.train.targets
    about: dict[str, dict[str, Any]] = {
        "inputs": {"shape": list(inputs.shape[1:]), "dtype": dtype_name(inputs.dtype)},
        "targets": {"shape": list(targets.shape[1:]), "dtype": dtype_name(targets.dtype)},
    }
    if not inputs.is_floating_point():  # tokens, say: a model has an embedding for each
        about["inputs"]["largest"] = max(int(part.inputs.max()) for part in parts if part.inputs.numel())
    return about


def like_data(config: Mapping[str, Any], examples: int = 1) -> FederatedData:
    """Data with examples like those of a run, for models that are sized to their data."""
    about = config["data"]
    looks = about["example"]
    inputs, targets = (
        torch.zeros(examples, *looks[of]["shape"], dtype=dtype_of(looks[of]["dtype"]))
        for of in ("inputs", "targets")
    )
    inputs += looks["inputs"].get("largest", 0)
    part = Part(inputs, targets, torch.tensor([0, examples]))
    return FederatedData(part, part, part, classes=about["classes"], name=about["name"])


def built_of(config: Mapping[str, Any], *, allow_imports: bool = False) -> nn.Module:
    """The module that a run's settings name. An import path is followed only if that is allowed."""
    remedy = (
        "hand in a module like it, as in run.personal(0, model=MyNet()); weights can be exported without it "
        "(descant export --weights-only)"
    )
    settings = config.get("settings") or {}
    if "model" not in settings:
        raise SettingError(f"model: the run's own module was made in Python, and a folder holds no code: {remedy}")
    if "example" not in config["data"]:
        raise SettingError(f"model: the run is of a version that did not note what an example looks like: {remedy}")
    data = like_data(config)
    data = one_logit(data) if settings.get("loss") == "bce" else data
    try:
        with importing(allow_imports), torch.random.fork_rng(devices=[]):
            module: nn.Module = build("models", settings["model"], data, path="model")
    except (SettingError, TaskError) as error:
        raise SettingError(f"{error}; or {remedy}") from error
    return module


def is_imported(config: Mapping[str, Any]) -> bool:
    """Whether a run's settings name its model by an import path, whose code may have changed since."""
    return ":" in ((config.get("settings") or {}).get("model") or {}).get("name", "")


def _said(tensor: tuple[list[int], torch.dtype] | None) -> str:
    return "not there" if tensor is None else f"{tensor[0]} of {dtype_name(tensor[1])}"
