"""The settings of a run, each declared once.

What `simulate` takes, its signature and docstring, what a settings file may hold, what a run records, how it is
resumed, what tells one cell of a grid from another and the page of the documentation all follow from the entries
below. To add a setting, add an entry here, write `simulate` anew (`python docs/simulate_text.py`), and use it in
`plan_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

from descant.aggregators import Aggregator
from descant.attacks import Attack
from descant.codecs import Codec
from descant.engine import Evaluation, Record
from descant.engine.cohort import Sampling
from descant.errors import SettingError, unknown
from descant.execution import Mode
from descant.experiment.allowed import (
    Allowed,
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
from descant.experiment.journal import Journal
from descant.experiment.keeping import Keep
from descant.experiment.listeners import Callbacks
from descant.experiment.parts import InARow, PartOf, Parts, When
from descant.experiment.progress import Watched

Trainers = Literal["cohort", "everyone"]
Nonfinite = Literal["drop", "keep"]
Store = Literal["memory", "disk"]

# "result": the run's figures follow from it. "how": it changes at most their last digits, how fast they come, or
# where they are kept. "label": a name. "call": a matter of this call, that no run records.
Role = Literal["result", "how", "label", "call"]

_REQUIRED: Any = object()
_SEEDS = 2**64  # a draw's address holds so many
_THREADS = 1024  # with very many more, the system gives none, and the process ends


@dataclass(frozen=True)
class Setting:
    """What is declared of a setting, apart from its name and its type."""

    help: str
    role: Role
    allowed: Allowed
    default: Any
    accepts: str | None  # what `simulate` takes, where that is more than the setting's own type

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


def setting(
    help: str, role: Role, allowed: Allowed, default: Any = _REQUIRED, *, accepts: str | None = None
) -> Any:
    """A field of a declaration; without a default the setting has to be given."""
    return field(metadata={"setting": Setting(help, role, allowed, default, accepts)})


@dataclass(frozen=True, kw_only=True)
class Settings:
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
        "how broadcasts become bytes on their way down: a codec of plain numbers.",
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
    device: str = setting('where to compute, such as "cpu" or "cuda".', "how", Device(), "cpu")
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

    @classmethod
    def of(cls, values: Mapping[str, Any], at: Mapping[str, str] | None = None) -> Self:
        """Checked settings. What is wrong is said by name, or by where the user wrote it (`at`), with its value."""
        known, at = declared(cls), at or {}
        for name in values:
            if name not in known:
                raise SettingError(f"{at[name]}: {cls.unknown(name)}") if name in at else cls.unknown(str(name))
        missing = [name for name, entry in known.items() if entry.required and name not in values]
        if missing:
            raise SettingError("\n".join(f"the setting '{name}' is missing" for name in missing))
        checked = {
            name: entry.allowed.check(at.get(name, name), values.get(name, entry.default))
            for name, entry in known.items()
        }
        settings = cls(**checked)
        if settings.store == "disk" and settings.commit not in (None, 1):
            raise refusal(at.get("commit", "commit"), settings.commit, "1 (or nothing) with store='disk'")
        return settings

    @classmethod
    def unknown(cls, name: str) -> SettingError:
        """The error for a setting that there is not."""
        return unknown("setting", name, declared(cls))

    def plain(self, *roles: Role) -> dict[str, Any]:
        """The settings of these roles as a file or a record holds them; without a role, all of them."""
        return {
            name: entry.allowed.plain(getattr(self, name))
            for name, entry in declared(type(self)).items()
            if not roles or entry.role in roles
        }

    def identity(self) -> dict[str, Any]:
        """What the result follows from, without what is as by default: a new setting changes nothing here."""
        found = {}
        for name, entry in declared(type(self)).items():
            value, allowed = getattr(self, name), entry.allowed
            by_default = not entry.required and value == allowed.check(name, entry.default)
            if entry.role == "result" and not by_default:
                found[name] = allowed.brief(value)
        return found


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


def declared(of: type[Settings]) -> dict[str, Setting]:
    """The entries of a declaration by name."""
    return {f.name: f.metadata["setting"] for f in fields(of)}
