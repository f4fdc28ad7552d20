"""How to execute a run: measured once, on its own model, clients and minibatches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.data import FederatedData
from descant.execution import Compile, Execution, Graphed, Loop, Mode, Vmap, choose, ongpu
from descant.execution.batches import Rows, Schedule
from descant.execution.captured import run
from descant.execution.convolutions import has_convolutions
from descant.execution.heap import keep_freed
from descant.execution.loop import takes_channels_last
from descant.execution.memory import Choice, key_of, recall, remember
from descant.execution.onebyone import OneByOne
from descant.execution.steps import Steps
from descant.execution.walk import Start
from descant.methods import Gradient, Method, Work
from descant.task import Task
from descant.task.recurrent import recurrent_layers
from descant.threads import using_threads

_PROBED = 3  # examples that a model is tried on
_FEW = 8  # clients that the loop is timed on
_CLEARLY = 0.8  # another mode is taken if it needs less than this share of the plainer one's time: noise is smaller
_LONG_RUN = 0.9  # the same for a program of one client: what it saves, a run that is worth compiling saves for long
_WORTH = 60.0  # seconds: a run whose uncompiled steps would take longer may gain by compiling

_MIXES = "minibatches of unequal length run under vmap, unpadded (BatchNorm)"
_RATE = 1e-3  # of a step that is timed
_ENOUGH = 1.0  # seconds of calls that are timed, of which the noise is a small part
_REPLAYED = 8  # steps that a graph is timed on
_ALONE, _LAID_OUT = "compile, one client at a time", "loop in channels_last"

_MEMORY = 2**27  # numbers that clients may take at once
_CACHE = 2**20  # numbers that a processor's cache holds
_MOST = 1024  # clients at once
_LEAST = 8  # clients at once, at least: with fewer, the cost of a call shows (a compiled program needs a quarter)


def threads_inside(execution: Execution) -> int | None:
    """How many threads torch may use: one where the workers of a loop are threads already, or a GPU works.

    What the processor does for a GPU is so little that threads would wait for each other longer than they work.
    """
    alone = isinstance(execution, Loop) and execution.workers > 1
    return 1 if alone or execution.task.device.type == "cuda" else None


class Prepared(NamedTuple):
    """An execution, how many clients it trains at once, and why it was chosen."""

    execution: Execution
    chunk: int
    why: str


def prepare(
    task: Task, data: FederatedData, method: Method, mode: Mode, *, rounds: int, trainers: int, chunk: int | None
) -> Prepared:
    """What a run of so many rounds with so many clients in training needs.

    "auto" times a step of the loop and of vmap, and of compiled programs where the run is long enough to win back
    their making, and takes another one than vmap where it is clearly faster; what it took is remembered, and taken
    again by the same run on the same machine. "compile" does without asking. `chunk` is how many clients to train
    at once, where that was asked for; a compiled program of one client does without vmap.
    """
    work: Work = getattr(method, "work", Work(epochs=1, batch=64))
    inputs, targets = data.train.client(int(data.train.sizes.argmax()))
    execution, why = choose(task, inputs[:_PROBED], targets[:_PROBED], mode)
    if data.train.inputs.device.type == "cuda":
        rate: float = getattr(method, "rate", _RATE)
        return _on_gpu(execution, data, work, mode, why, rounds * trainers, trainers, chunk, rate)
    keep_freed()
    few = chunk or at_once(task, data, work, trainers, least=_LEAST)
    if isinstance(execution, Loop):
        loop = _loop(task)
        return Prepared(loop, chunk or _shared_out(loop, few), why)
    assert isinstance(execution, Vmap)
    fewer = chunk or at_once(task, data, work, trainers, least=_LEAST // 4)
    ways = _ways(execution, fewer, takes_channels_last(task, inputs[:_PROBED]))
    if mode == "compile" and execution.mixes:
        return Prepared(Vmap(task, mixes=True, evenly=Compile(task, few)), few, _MIXES)
    if mode == "compile":
        return Prepared(ways[_ALONE if fewer == 1 else "compile"](), fewer, why)
    if mode != "auto":
        return Prepared(execution, few, why)
    trained, key = rounds * trainers, _key(task, data, work, rounds * trainers, chunk)
    choice = recall(key)
    if choice is None or choice.name not in ways:
        choice = _measure(ways, data, work, few, trained, one_by_one=chunk is None)
        remember(key, choice)
    best = ways[choice.name]()
    for note in choice.notes:
        best.note(note)
    number = best.clients if isinstance(best, Compile) else few
    return Prepared(
        best, _shared_out(best, few) if isinstance(best, Loop) and chunk is None else number, choice.why
    )


def _on_gpu(
    execution: Execution,
    data: FederatedData,
    work: Work,
    mode: Mode,
    why: str,
    trained: int,
    trainers: int,
    chunk: int | None,
    rate: float,
) -> Prepared:
    """The same where a GPU computes: as many clients at once as its memory holds.

    Steps are timed at the run's own `rate`. A number is a part of a program: the one that is compiled here then is,
    for plain descent, the one that the run needs, and torch finds it again in its cache.
    """
    task = execution.task

    def timed(execution: Execution, clients: int) -> float:
        return _seconds_a_client(execution, data, work, clients, rate)

    def slopes(task: Task, clients: int) -> Tensor:
        return _gradients(task, data, work, clients)

    number = chunk or ongpu.fitting(execution, data, work, trainers, timed)
    if not isinstance(execution, Vmap):
        return Prepared(execution, number, why)
    mixes, execution = execution.mixes, Graphed(task, number)
    if mode != "auto":
        best: Vmap = Compile(task, number) if mode == "compile" else execution
        return Prepared(*((Vmap(task, mixes=True, evenly=best), number, _MIXES) if mixes else (best, number, why)))
    schedule = _schedule(data, torch.arange(number, device=data.train.inputs.device), work)
    if mixes and not schedule.even:
        return Prepared(Vmap(task, mixes=True, evenly=execution), number, _MIXES)
    key, ways = _key(task, data, work, trained, chunk), ongpu.ways(execution, number, mixes)
    choice = recall(key)
    if choice is None or choice.name not in ways:
        choice = ongpu.fastest(ways, number, len(schedule), trained, timed, slopes)
        remember(key, choice)
    best = ways[choice.name]()
    if best.convolutions == "unfolded" and chunk is None:  # what is unfolded takes more room
        number = ongpu.fitting(Vmap(best.task), data, work, trainers, timed)
        best = ongpu.with_convolutions("unfolded", Compile(task, number))
    found = Vmap(task, mixes=True, evenly=best) if mixes else best
    for note in choice.notes:
        found.note(note)
    return Prepared(found, number, f"{choice.why}; {_MIXES}" if mixes else choice.why)


def _ways(vmapped: Vmap, fewer: int, channels_last: bool) -> dict[str, Callable[[], Execution]]:
    """The ways to execute that "auto" chooses among on a CPU, by name."""
    task = vmapped.task
    found: dict[str, Callable[[], Execution]] = {
        "vmap": lambda: vmapped,
        "loop": lambda: _loop(task),
        "compile": lambda: Compile(task, fewer),
        _ALONE: lambda: OneByOne(task, channels_last=channels_last),
    }
    return found | ({_LAID_OUT: lambda: _loop(task, channels_last=True)} if channels_last else {})


def _key(task: Task, data: FederatedData, work: Work, trained: int, chunk: int | None) -> str:
    """What a choice follows from: the model, the clients' data as far as they take time, and the work."""
    device, sizes = data.train.inputs.device, data.train.sizes
    model = (str(task.model), task.describe(), [(n, tuple(p.shape)) for n, p in task.model.named_parameters()])
    clients = (len(data), data.train.largest, int(sizes.sum()), tuple(data.input_shape))
    exactly = (task.half, torch.backends.cuda.matmul.allow_tf32)
    return key_of(device, model, clients, work, trained, chunk, *exactly)


def at_once(task: Task, data: FederatedData, work: Work | None, clients: int, *, least: int) -> int:
    """How many of `clients` to process at once: what fits memory and, for the `work` of training on a CPU, its
    cache, but no fewer than `least`; all such groups are of about the same size."""
    largest, shape = data.train.largest, prod(data.input_shape)
    most = min(_MOST, _MEMORY // (8 * task.dim + 2 * largest * shape))
    if work is not None and data.train.inputs.device.type == "cpu":
        examples = min(work.batch_in(1) or largest, largest)
        most = min(most, max(least, _CACHE // (4 * task.dim + examples * shape)))
    groups = -(-clients // max(1, most))
    return -(-clients // groups)


def _loop(task: Task, channels_last: bool = False) -> Loop:
    workers = torch.get_num_threads() if task.device.type == "cpu" else 1
    return Loop(task, channels_last=channels_last, workers=workers)


def _shared_out(loop: Loop, clients: int) -> int:
    """So many clients at once that no worker waits for another at the end of a step."""
    return -(-clients // loop.workers) * loop.workers


def _measure(
    ways: dict[str, Callable[[], Execution]],
    data: FederatedData,
    work: Work,
    few: int,
    trained: int,
    one_by_one: bool,
) -> Choice:
    """The fastest way to have clients trained `trained` times, `few` at once or as many as a program takes. If they
    may go `one_by_one`, that is one."""
    notes, vmapped, seconds = list[str](), ways["vmap"](), dict[str, float]()
    seconds["vmap"] = _seconds_a_client(vmapped, data, work, few)
    for name in ("loop", *([_LAID_OUT] if _LAID_OUT in ways else [])):
        loop = ways[name]()
        assert isinstance(loop, Loop)
        seconds[name] = _seconds_a_client(loop, data, work, min(few, max(_FEW, loop.workers)))
    best = min((name for name in seconds if name != "vmap"), key=seconds.__getitem__)
    # The loop has torch's own kernel for recurrent layers, and is the plainer way there.
    share = 1.0 if recurrent_layers(vmapped.task.model) else _CLEARLY
    best = best if seconds[best] < share * seconds["vmap"] else "vmap"
    steps = len(_schedule(data, torch.arange(few, device=data.train.inputs.device), work))

    def compiled(name: str, share: float) -> str:
        """A compiled program, if it needs less than this share of the best one's time; else the best."""
        program = ways[name]()
        assert isinstance(program, Compile)
        seconds[name] = _seconds_a_client(program, data, work, program.clients)
        notes.extend(program.notes)
        return name if not program.notes and seconds[name] < share * seconds[best] else best

    assert isinstance(vmapped, Vmap)
    worth = not vmapped.mixes and steps * trained * seconds[best] > _WORTH
    if worth and one_by_one and has_convolutions(vmapped.task):
        best = compiled(_ALONE, _LONG_RUN)
    # Compiling speeds up vmap by a few times at the most: where another is ahead by more, nothing is to be won.
    if worth and seconds[best] >= seconds["vmap"] / 3:
        best = compiled("compile", _CLEARLY)
    timed = ", ".join(f"{name} {1e6 * value:.3g}" for name, value in seconds.items())
    return Choice(best, f"µs a step of one client: {timed}", list(dict.fromkeys(notes)))


def _seconds_a_client(
    execution: Execution, data: FederatedData, work: Work, clients: int, rate: float = _RATE
) -> float:
    """The time of a plain gradient step like those that the run will take, shared among its clients."""
    task, who = execution.task, torch.arange(clients, device=data.train.inputs.device)
    schedule = _schedule(data, who, work, task.draws)
    x = task.start().to(who.device).repeat(clients, 1)
    statistics = task.buffer_start().to(who.device).repeat(clients, 1)
    active, number = torch.ones_like(who, dtype=torch.bool), 1
    descend = partial(_descend, rate)
    steps = Steps(descend, execution)

    def step() -> Any:
        return steps(x, statistics, (schedule.at(0),), active, ())

    if isinstance(execution, Compile) and who.device.type == "cuda":  # as it will run: replayed
        number = min(_REPLAYED, len(schedule))
        start = Start(x, statistics, ~active, torch.full((clients,), number), ())
        step = partial(run, descend, execution, 0, number, start, [schedule])
    with torch.no_grad(), using_threads(threads_inside(execution)):
        return _seconds(step) / clients / number


def _gradients(task: Task, data: FederatedData, work: Work, clients: int) -> Tensor:
    """The gradients [K, d] of the first clients at the model that training starts from."""
    who = torch.arange(clients, device=data.train.inputs.device)
    x, statistics = (start.to(who.device).repeat(clients, 1) for start in (task.start(), task.buffer_start()))
    everyone = torch.ones_like(who, dtype=torch.bool)
    with torch.no_grad():
        return Vmap(task).grads(x, statistics, _schedule(data, who, work)[0], everyone, task.objective, ())[0]


def _descend(rate: float, x: Tensor, grad: Gradient) -> Tensor:
    return x - rate * grad(x)


def _schedule(data: FederatedData, who: Tensor, work: Work, keyed: bool = True) -> Schedule:
    return Schedule(Rows(data.train, who), work, torch.ones(len(who)), (0, "tuning", 0), keyed=keyed)


def _seconds(call: Callable[[], Any]) -> float:
    """The time of a call, the best of a few; the first one is not counted. Long ones tell enough at once."""
    times = list[float]()
    _done(call)
    while len(times) < 3 and sum(times) < _ENOUGH:
        began = perf_counter()
        _done(call)
        times.append(perf_counter() - began)
    return min(times)


def _done(call: Callable[[], Any]) -> None:
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
