"""Models as programs that need no descant: what torch.export makes of a module, and ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from descant.errors import SettingError, TaskError
from descant.experiment.modules import like_data
from descant.files import write_bytes

Save = Callable[[dict[str, Tensor], Path], object]  # write a model, given its tensors by name


def programs_of(module: nn.Module, config: dict[str, Any], formats: Sequence[str]) -> dict[str, Save]:
    """What writes a model as a program, in some formats. The module is traced once."""
    program = traced(module, like_data(config, 2).train.inputs)
    saves: dict[str, Save] = {}
    if "pt2" in formats:

        def save(tensors: dict[str, Tensor], path: Path) -> None:
            _put(program, tensors)
            raw = io.BytesIO()
            torch.export.save(program, raw)
            write_bytes(path, [raw.getbuffer()])

        saves["pt2"] = save
    if "onnx" in formats:
        names: dict[str, Any] = {"input_names": ["inputs"], "output_names": ["outputs"]}
        with _quiet():
            made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, **names)
        assert made is not None

        def save_onnx(tensors: dict[str, Tensor], path: Path) -> None:
            with _quiet():
                made.apply_weights(tensors)
            write_bytes(path, [made.model_proto.SerializeToString()])

        saves["onnx"] = save_onnx
    return saves


def traced(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The program of a module for any number of examples like this; without the examples, which are pickled."""
    try:
        with _quiet(), torch.no_grad():
            shapes = ({0: torch.export.Dim("batch", min=1)},)
            program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    except Exception as error:  # whatever torch.export cannot do
        first = str(error).strip().splitlines()[:1]
        raise TaskError(
            f"{type(module).__name__} cannot be made a program by torch.export ({' '.join(first)}): export weights "
            "alone (--weights-only, or programs=False)"
        ) from error
    program.example_inputs = None
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say of LSTM's own lists, of their own future, and of packages that are not needed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _put(program: torch.export.ExportedProgram, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, held in program.state_dict.items():
            held.copy_(tensors[name])


def require_onnx() -> None:
    """Refuse to begin where what writes ONNX is missing."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise SettingError(
            f"onnx: it needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'descant[onnx]'"
        )
