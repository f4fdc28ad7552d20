"""The settings of a run, each declared once.

What `simulate` takes, its signature and docstring, what a settings file may hold, what a run records, how it is
resumed, what tells one cell of a grid from another and the page of the documentation all follow from the entries
below. To add a setting, add an entry here, write `simulate` anew (`python docs/simulate_text.py`), and use it in
`plan_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from descant.aggregators import Aggregator
from descant.attacks import Attack
from descant.codecs import Codec
from descant.engine import Evaluation, Health, Record
from descant.engine.cohort import Sampling
from descant.execution import Mode
from descant.execution.device import Precision
from descant.experiment.allowed import (
    Device,
    Flag,
    HowMany,
    Instance,
    OneOf,
    Share,
    Text,
    Whole,
    refusal,
)
from descant.experiment.callback import Callback
from descant.experiment.declaring import Declaration, Setting, declared, setting
from descant.experiment.journal import Journal
from descant.experiment.keeping import Keep
from descant.experiment.listeners import Callbacks
from descant.experiment.parts import Checkups, InARow, PartOf, Parts, When
from descant.experiment.progress import Watched

__all__ = ["Call", "Setting", "Settings", "declared"]

Trainers = Literal["cohort", "everyone"]
Nonfinite = Literal["drop", "keep"]
Store = Literal["memory", "disk"]

_SEEDS = 2**64  # a draw's address holds so many
_THREADS = 1024  # with very many more, the system gives none, and the process ends


@dataclass(frozen=True, kw_only=True)
class Settings(Declaration):
    """The settings that a call of `simulate` and a settings file share. `of` checks and makes them."""

    rounds: int = setting("the number of communication rounds.", "result", Whole(1))
    cohort: int | float | None = setting(
        "clients a round: a number, a fraction (0.1 is a tenth), or None for everyone.",
        "result",
        HowMany(1, optional=True),
        None,
    )
    seed: int = setting("all draws of the run follow from it.", "result", Whole(0, _SEEDS - 1), 0)
    sampling: Sampling = setting(
        'the cohort is drawn uniformly, or in proportion to the clients\' "size".',
        "result",
        OneOf(get_args(Sampling)),
        "uniform",
    )
    trainers: Trainers = setting(
        "who trains in a round: the cohort, or everyone while only the cohort's messages are used.",
        "result",
        OneOf(get_args(Trainers)),
        "cohort",
    )
    own_start: bool = setting(
        "every client draws a model of its own to start from, instead of the module's parameters.",
        "result",
        Flag(),
        False,
    )
    stragglers: float = setting(
        "the share of clients that finish only a part, uniformly drawn, of their local work.",
        "result",
        Share(),
        0.0,
    )
    drop_last: bool = setting("leave out the short last minibatch of an epoch.", "result", Flag(), False)
    nonfinite: Nonfinite = setting(
        "messages with a NaN or an infinity are dropped and counted, or kept.",
        "result",
        OneOf(get_args(Nonfinite)),
        "drop",
    )
    evaluate: Evaluation = setting(
        "evaluate every so many rounds, or an `Evaluation` that says more.",
        "result",
        When(),
        1,
        accepts="int | Evaluation | Mapping[str, Any]",
    )
    health: Health | None = setting(
        "look at what the aggregation does to the clients' models (their jumps, and their losses on the way to the "
        "aggregate): every so many rounds, in a list of rounds, or a `Health` that says more.",
        "result",
        Checkups(),
        None,
        accepts="int | Sequence[int] | Health | Mapping[str, Any] | None",
    )
    aggregator: Aggregator = setting(
        "how the server combines messages, by object, name or spec; several in a row as a list.",
        "result",
        InARow("aggregators"),
        "mean",
        accepts="Aggregator | Spec | Sequence[Aggregator | Spec]",
    )
    codec: Codec = setting(
        "how messages become bytes on their way up, by object, name or spec.",
        "result",
        PartOf("codecs"),
        "native",
        accepts="Codec | Spec",
    )
    downlink: Codec = setting(
        "how broadcasts become bytes on their way down: a codec of plain numbers, or one of updates, by which the "
        "server says how its broadcast moved.",
        "result",
        PartOf("codecs"),
        "native",
        accepts="Codec | Spec",
    )
    attacks: tuple[Attack, ...] = setting(
        "what malicious clients do: one attack or several, by object, name or spec, or a paper's by the name of a "
        "preset, as in lp-proj/sign-flip.",
        "result",
        Parts("attacks"),
        (),
        accepts="Attack | Spec | Sequence[Attack | Spec]",
    )
    malicious: int | float | tuple[int, ...] | None = setting(
        "which clients attack: how many or a share of all, drawn by the seed, or a list of their numbers. They are "
        "the same for every method. With `attacks` it has to be given; 0 is nobody.",
        "result",
        HowMany(0, listed=True, optional=True, nothing="nobody"),
        None,
        accepts="int | float | Sequence[int] | None",
    )
    newcomers: int | float | tuple[int | str, ...] | None = setting(
        "clients that never take part in training, and are evaluated as ones who come later: how many or a share "
        "of all, drawn by the seed, or a list of their numbers or names. Their figures stand apart.",
        "result",
        HowMany(0, listed=True, named=True, optional=True, nothing="nobody"),
        None,
        accepts="int | float | Sequence[int | str] | None",
    )
    newcomer_rounds: int = setting(
        "how many rounds of work on its own training data a newcomer does before it is evaluated.",
        "result",
        Whole(0),
        1,
    )
    lost: float = setting(
        "the share of messages that are lost on their way up, after the work was done.", "result", Share(), 0.0
    )
    secret: int | None = setting(
        "what the parties draw in private (noise, masks) follows from it; by default it is drawn from the system, "
        "and follows from nothing that others know.",
        "result",
        Whole(0, 2**62, optional=True),
        None,
    )
    precision: Precision = setting(
        'how exactly products are computed: "full", as the numbers are stored; on a GPU "tf32", with 10 bits after '
        'the point; "bf16", where the model computes in bfloat16, its parameters and losses as they are stored.',
        "result",
        OneOf(get_args(Precision)),
        "full",
    )
    deterministic: bool = setting(
        "on a GPU, add up in the same order every time, as far as torch can, so that the same seed gives the same "
        "bits, after an interruption too. Otherwise faster kernels may be taken, of convolutions above all, and "
        "runs differ in the last digits.",
        "how",
        Flag(),
        True,
    )
    mode: Mode = setting(
        '"vmap" runs all clients as one program, "compile" a compiled one, and "loop" one client after the other; '
        '"auto" measures, and chooses. Modes agree up to rounding.',
        "how",
        OneOf(get_args(Mode)),
        "auto",
    )
    chunk: int | None = setting(
        "how many clients are processed at once; by default what fits memory and cache. Results do not depend on "
        "it.",
        "how",
        Whole(1, optional=True),
        None,
    )
    device: str = setting(
        'where to compute, such as "cpu" or "cuda"; "auto" is a GPU where there is one.', "how", Device(), "auto"
    )
    threads: int | None = setting(
        "how many threads to compute with. By default as many as there are cores, or OMP_NUM_THREADS; on a busy "
        "machine, 1 is many times faster than more.",
        "how",
        Whole(1, _THREADS, optional=True),
        None,
    )
    store: Store = setting(
        "where the clients' state lies: in memory, or on \"disk\", as files in the run's folder, for more clients "
        "than memory holds.",
        "how",
        OneOf(get_args(Store)),
        "memory",
    )
    commit: int | None = setting(
        "after how many rounds to commit to the run's folder, so that the run can be resumed from there. By "
        'default when 10 seconds have passed (or 20 times what a commit takes); with store="disk" it is every '
        "round.",
        "how",
        Whole(1, optional=True),
        None,
    )
    keep_models: Keep = setting(
        'which models are kept, for `Run.personal` and its like: those of the round "chosen" on validation data '
        'and of the last one, those of the "last" one, or "none".',
        "how",
        OneOf(get_args(Keep)),
        "chosen",
    )
    label: str | None = setting(
        "the run's name in tables and charts; the method's by default. Runs of the same label are its seeds.",
        "label",
        Text(),
        None,
    )

    def check(self, at: Mapping[str, str]) -> None:
        if self.store == "disk" and self.commit not in (None, 1):
            raise refusal(at.get("commit", "commit"), self.commit, "1 (or nothing) with store='disk'")
        name, default = "newcomer_rounds", declared(Settings)["newcomer_rounds"].default
        if self.newcomer_rounds != default and not self.newcomers:
            only = f"{default}, its default, where there are no newcomers: say who comes later, as in newcomers=0.2"
            raise refusal(at.get(name, name), self.newcomer_rounds, only)


@dataclass(frozen=True, kw_only=True)
class Call(Settings):
    """What a call of `simulate` takes: the settings of the run, and what concerns the call alone."""

    out: str | Path | Journal | None = setting(
        "a folder to leave the run in. Should it be interrupted, `resume` goes on with it from there.",
        "call",
        Instance((str, Path, Journal), "the path of a folder"),
        None,
    )
    overwrite: bool = setting("replace the run that already lies in `out`.", "call", Flag(), False)
    progress: bool | Callable[[Record], None] | None = setting(
        "True shows a bar, in a terminal and in a notebook, and a line now and then elsewhere. A function is "
        "called with every record as it is made.",
        "call",
        Watched(),
        None,
    )
    callbacks: tuple[Callback, ...] = setting(
        "what looks on while the run goes on, and may stop it: objects of `descant.callbacks`, or of your own.",
        "call",
        Callbacks(),
        (),
        accepts="Callback | Sequence[Callback]",
    )
