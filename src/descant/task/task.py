"""A task: the user's module, a loss and a metric, for K clients at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from descant.errors import SettingError, TaskError
from descant.task.batch import Batch
from descant.task.dropout import address
from descant.task.layout import Layout
from descant.task.measures import resolve
from descant.task.metric import Metric
from descant.task.objectives import masked_mean
from descant.task.products import spell_out
from descant.task.recurrent import vectorise
from descant.task.tallies import PerExample

# torch draws for these inside the layer, where no address reaches.
_UNADDRESSED = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


def _has_ties(model: nn.Module) -> bool:
    """Whether a tensor of the model has several names. If none has, torch need not look for them at every call."""
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return len({id(tensor) for _, tensor in tensors}) < len(tensors)


def _norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """The layers that keep running statistics, or could."""
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]


def _running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that training moves. Others (a positional encoding, say) are constants of the module."""
    owned = {id(b) for norm in _norms(model) for b in norm.buffers() if b.is_floating_point()}
    return {name: b for name, b in model.named_buffers() if id(b) in owned}


def _refuse_unset(model: nn.Module) -> None:
    """Refuse a model without numbers to start from: layers that wait for a first example, NaN, infinity.

    What is not trained may hold infinity, as a causal mask does.
    """
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise TaskError(f"the model's '{name}' has no shape yet: call the model once on a few examples first")
        if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
            raise TaskError(f"the model's '{name}' holds NaN or infinity: start from finite numbers")


class Task:
    """What every client learns: an ordinary `nn.Module`, a loss and a metric.

    A client's parameters are one flat vector of `dim` numbers, in the order of `model.named_parameters()`;
    those that do not require a gradient stay as they are in the module. The module given is never changed: its
    parameters are the model that training starts from, and their dtype is the dtype of the whole run.

    `loss` is "cross_entropy" (of a score for each class), "bce" or "hinge" (of one score, for two classes), with
    accuracy as the metric; "squared_error"; or a function of (outputs, targets) that returns one number an example,
    together with a metric. `metric` is a name ("f1", "balanced-accuracy", "auc", ...) or a `Metric`.

    `buffers` says what becomes of running statistics (BatchNorm): "shared" averages them with the shared
    model, and counts their bytes; "local" keeps each client's own.

    >>> task = Task(nn.Linear(60, 10))
    >>> task.dim
    610
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | PerExample = "cross_entropy",
        metric: str | Metric | None = None,
        *,
        buffers: Literal["shared", "local"] = "shared",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TaskError(f"Task.model must be a torch.nn.Module, not {type(model).__name__}")
        if buffers not in ("shared", "local"):
            raise SettingError(f"Task.buffers = {buffers!r}: it must be 'shared' or 'local'")
        _refuse_unset(model)
        self.model = model
        self.loss, self.metric = resolve(loss, metric)
        self.buffers = buffers
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        statistics = _running_statistics(model)
        of_norms = {id(p) for norm in _norms(model) for p in norm.parameters()}
        self.layout = Layout.of(parameters, [name for name, p in parameters.items() if id(p) in of_norms])
        self.buffer_layout = Layout.of(statistics)
        self._training, self._deployed = deepcopy(model).train(), deepcopy(model).eval()
        self._sites = address(self._training)
        spell_out(self._training)
        for module in (self._training, self._deployed):
            vectorise(module)
        for norm in _norms(self._training):
            norm.num_batches_tracked = None  # a counter without a reader, which vmap would refuse
        self._check(parameters)
        self._ties = _has_ties(model)
        self.dtype = next(iter(parameters.values())).dtype
        self.device = torch.device("cpu")  # where it computes
        self.half = False  # whether the module computes in bfloat16; parameters and losses keep their dtype

    @property
    def dim(self) -> int:
        return self.layout.dim

    @property
    def draws(self) -> bool:
        """Whether the module draws random numbers (dropout)."""
        return bool(self._sites)

    def tensors(self) -> list[Tensor]:
        """Every tensor of the modules; none of them ever changes."""
        modules = (self.model, self._training, self._deployed)
        return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]

    def start(self) -> Tensor:  # [d]
        """The module's own parameters: where training starts."""
        return self.layout.flatten(dict(self.model.named_parameters())).clone()

    def buffer_start(self) -> Tensor:  # [b]
        return self.buffer_layout.flatten(dict(self.model.named_buffers())).to(self.dtype).clone()

    def state(self) -> dict[str, Tensor]:
        """Every parameter and buffer of the module by name, those that are not trained too."""
        return {n: t.detach() for n, t in (*self.model.named_parameters(), *self.model.named_buffers())}

    def starting_at(self, state: Mapping[str, Tensor]) -> Task:
        """The same task from another first model, given as `state` gives it."""
        model = deepcopy(self.model)
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        with torch.no_grad():
            for name, value in state.items():
                named[name].copy_(value)
        return Task(model, self.loss, self.metric, buffers=self.buffers)

    def in_half(self) -> Task:
        """The same task with a module that computes in bfloat16, where torch knows how (`torch.autocast`)."""
        task = copy(self)
        task.half = True
        return task

    def random_start(self, seed: int) -> Tensor:  # [d]
        """A start of its own, drawn by the layers' `reset_parameters`."""
        model = deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for module in model.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
                elif any(p.requires_grad for p in module.parameters(recurse=False)):
                    raise TaskError(
                        f"{type(module).__name__} has parameters but no reset_parameters(): "
                        "clients cannot draw a start of their own; add one, or start all from the same model"
                    )
        return self.layout.flatten(dict(model.named_parameters())).clone()

    def to(self, device: torch.device) -> None:
        """Compute on `device`: what the module holds besides its trained parameters must lie there too."""
        self.device = device
        self._training.to(device)
        self._deployed.to(device)

    def module(self, x: Tensor, buffers: Tensor | None = None) -> nn.Module:
        """The model with the parameters `x` [d], ready to predict."""
        model = deepcopy(self.model).eval()
        values = self.layout.unflatten(x.detach().cpu())
        if buffers is not None:
            values |= self.buffer_layout.unflatten(buffers.detach().cpu())
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        with torch.no_grad():
            for name, value in values.items():
                named[name].copy_(value)
        return model

    def apply(self, x: Tensor, buffers: Tensor, inputs: Tensor, key: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs and running statistics of **one** client: x [d], buffers [b], inputs [B, ...].

        With a key the module is in training mode and draws by that address; without one it predicts.
        """
        # In-place updates in the module (BatchNorm) must neither reach the caller's tensor nor share memory.
        statistics = {n: b.clone() for n, b in self.buffer_layout.unflatten(buffers).items()}
        values = self.layout.unflatten(x) | statistics
        if key is None:
            return self._call(self._deployed, values, inputs), buffers
        for name, site in self._sites.items():
            site.uses = 0
            values[f"{name}.key"] = key
        outputs = self._call(self._training, values, inputs)
        if not statistics:
            return outputs, buffers
        return outputs, torch.cat([statistics[name].reshape(-1) for name in self.buffer_layout.names])

    def _call(self, module: nn.Module, values: dict[str, Tensor], inputs: Tensor) -> Tensor:
        if not self.half:
            outputs: Tensor = functional_call(module, values, (inputs,), tie_weights=self._ties)
            return outputs
        with torch.autocast(inputs.device.type, torch.bfloat16):
            outputs = functional_call(module, values, (inputs,), tie_weights=self._ties)
        return outputs.to(self.dtype)

    def objective(self, predict: Callable[[Tensor], Tensor], x: Tensor, batch: Batch) -> Tensor:
        """The task's own objective: the mean loss over the real examples of one client's batch."""
        return masked_mean(self.loss(predict(x), batch.targets), batch.mask)

    def __repr__(self) -> str:
        about = self.describe()
        model = f"{type(self.model).__name__}, {self.dim:,} parameters, {about['dtype']}"
        return f"Task({model}; loss {about['loss']}, metric {self.metric.name})"

    def describe(self) -> dict[str, Any]:
        loss = getattr(self.loss, "__name__", type(self.loss).__name__)
        about = {"model": str(self.model), "parameters": self.dim, "loss": loss, "metric": self.metric.name}
        return about | {"dtype": str(self.dtype).removeprefix("torch."), "buffers": self.buffers}

    def _check(self, parameters: dict[str, nn.Parameter]) -> None:
        if not parameters:
            raise TaskError("the model has no parameter that requires a gradient: there is nothing to train")
        if len({p.dtype for p in parameters.values()}) > 1:
            kinds = sorted({str(p.dtype) for p in parameters.values()})
            raise TaskError(f"the model's parameters mix {' and '.join(kinds)}: use one, as in model.float()")
        for name, module in self._training.named_modules():
            where = f"{type(module).__name__} ('{name}')" if name else type(module).__name__
            if isinstance(module, _UNADDRESSED):
                raise TaskError(f"{where} draws random numbers that cannot be addressed: use nn.Dropout")
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.momentum is None:
                raise TaskError(f"{where} has momentum=None, a mean over all batches: give it a number")
