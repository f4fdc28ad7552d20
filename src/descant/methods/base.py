"""The contract of a method: plain tensor maths on a batch of K clients, whose leading axis is the client.

A method is a frozen dataclass of hyper-parameters and a few functions without side effects. It knows nothing of
engines, files or networks: the simulator calls it with the whole cohort, a device on a network with K = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import NoSharedModelError
from descant.fields import Checked
from descant.mail import Mail, Sent
from descant.methods.work import Taken as Taken
from descant.methods.work import Work as Work
from descant.rounding import Rounding as Rounding
from descant.task import Batch, Layout, Objective
from descant.trees import Tree as Tree

Messages = Mail  # what a method's server gets
X = TypeVar("X", Tensor, tuple[Tensor, ...])


class PerClient(NamedTuple):
    """A leaf of a broadcast that holds one row for every client (MOCHA); other leaves are the same for all."""

    rows: Tensor  # [N, ...]


class ServerView(Tree):
    """What the server holds, by name, and where it stands: `server["w"]`, `server.ctx.round`."""

    def __init__(self, leaves: Mapping[str, Tensor], ctx: Context) -> None:
        super().__init__(leaves)
        self.ctx = ctx


class Aggregate(Protocol):
    """Combine leaves [S, ...] over the senders, by the run's aggregator; `weights` [S] are what it may weigh by."""

    def __call__(self, leaves: Mapping[str, Tensor], weights: Tensor | None = None) -> Tree: ...


class Gradient(Protocol):
    """The gradients of K clients at x [K, d] on the current minibatch, of the task's loss or of an `objective`.

    `rows` are [K, ...] tensors that the objective gets one row of; `draw` picks among several minibatches a step.
    """

    def __call__(
        self, x: Tensor, /, *rows: Tensor, objective: Objective | None = None, draw: int = 0
    ) -> Tensor: ...


class Until(NamedTuple):
    """What a step returns that may end before all steps are taken.

    `x` is the next x. `met` [K] says which clients met the stopping rule at the x before it; these take no more
    steps, and keep the x before it.
    """

    x: Any
    met: Tensor


Step = Callable[..., Any]  # step(x, grad, *rows) -> x, Down(x, ...) or Until(x, met); pure, on all K clients


class LocalView(Protocol):
    """What a method may see of its K clients, and the loop that runs its steps."""

    ctx: Context  # where the clients stand: round, seed, coin, draws
    clients: Tensor  # [K] their numbers
    n: Tensor  # [K] training examples
    largest: int  # the most training examples of a client of this process, for state with a number an example
    round: int
    seed: int  # of the run, for what all parties derive alike (a projection)
    layout: Layout  # name -> slice of d
    buffers: dict[str, Tensor]  # model -> its running statistics [K, b]; b is 0 where a model keeps none

    @property
    def ended(self) -> Tensor | tuple[Tensor, ...] | None:
        """What the last `run` of this round ended with, for `Method.trained`; None where nothing ran."""
        ...

    @property
    def start(self) -> Tensor:
        """The models [K, d] that the clients start from."""
        ...

    @property
    def coin(self) -> float:
        """A number in (0, 1), the same for all parties of this round."""
        ...

    def run(
        self, step: Step, x: X, *rows: Tensor, work: Work, role: str, draws: int = 1, start: str | None = None
    ) -> X:
        """Apply `step` as often as each client's work asks.

        `role` addresses the minibatches: two runs with the same role, round and client see the same ones. The part
        before a '/' names the model that is trained, "shared", "personal" or another one of `trains`, for the sake
        of running statistics. They go on from where that model's were, or from those of the model `start`, where x
        was made from it. In `personal` a model that no round has trained begins with the shared one's.
        """
        ...

    def taken(self, role: str | None = None) -> Taken:
        """What each client has done in this round: stragglers take fewer steps, small clients shorter epochs.

        Of all runs; or of those in a `role` and its parts ("personal" and "personal/1"), added up.
        """
        ...

    def part(self, name: str) -> Batch:
        """All the clients' "train" or "valid" examples, padded."""
        ...

    def losses(self, x: Tensor, part: str = "train", model: str | None = None) -> Tensor:
        """The mean loss [K] of the models x [K, d] on a part of the clients' own data.

        They predict with the running statistics of `model`, by default the one that was trained last in this
        round; before any was, with the shared model's.
        """
        ...

    def count(self, steps: Tensor) -> None:
        """Put steps [K] on the clients' bill that each cost what a gradient on one example does (MOCHA)."""
        ...

    def record(self, name: str, values: Tensor) -> None:
        """Report a figure [K] of this round; the run keeps its sum over the clients."""
        ...


@dataclass(frozen=True, kw_only=True)
class Method(Checked, ABC):
    """A federated method. Subclasses set `name` and `paper`, and say which models a client trains."""

    name: ClassVar[str]
    paper: ClassVar[str]
    trains: ClassVar[tuple[str, ...]]  # the models that `local.run` is called for: "shared", "personal", ...
    has_shared: ClassVar[bool]  # whether there is a global model
    personalizes: ClassVar[bool]  # whether what a client deploys differs from the shared model
    mute: ClassVar[bool] = False  # whether clients never send anything, so that nothing can be forged or combined
    # One more each time that the same settings come to compute something else: runs from before stand apart then.
    # That of a solver is not looked at: what has one needs a new one as well.
    revision: ClassVar[int] = 1

    def server_start(self, ctx: Context) -> Tree:
        """The server's first state, from the initial model `ctx.x0` [d]; the leaves in `held` are [N, ...]."""
        return {}

    def client_start(self, local: LocalView) -> Tree:
        """The first state of K clients, from the models `local.start` [K, d] that they start with."""
        return {}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        """What travels down. Clients see every leaf as [K, ...]."""
        return {}

    @abstractmethod
    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        """A round on K clients: the messages to send, leaves [K, ...], and the clients' new state."""

    def server(self, server: ServerView, messages: Mail, aggregate: Aggregate) -> Tree:
        """The next state of the server, from what it received."""
        return server

    def reply(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        """What travels down to the senders of a round at its end, where a round goes up and down again (L2SGD)."""
        return {}

    def hear(self, reply: Tree, state: Tree, local: LocalView) -> Tree:
        """The new state of K clients after the server's reply."""
        return state

    @abstractmethod
    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """The models [K, d] that the clients deploy. They may be trained further on the clients' own data."""

    def shared(self, server: ServerView) -> Tensor:
        """The global model [d]."""
        raise NoSharedModelError(f"{type(self).__name__} has no shared model: ask for a client's personal model")

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """The models [K, d] that clients hold after the work of a round, before anything is aggregated.

        `state` is their new one. By default it is what their last local steps ended with.
        """
        return local.ended if isinstance(local.ended, Tensor) else self.personal(down, state, local)

    def resumes(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """The models [K, d] that the local work of a round starts from: by default, what clients deploy."""
        return self.personal(down, state, local)

    @property
    def sends(self) -> Mapping[str, Sent]:
        """What the leaves of a message are, for what compresses or attacks updates: `difference`, `position`."""
        return {}

    @property
    def needs(self) -> Literal["sums", "rows"]:
        """ "sums" where the server looks at messages by `aggregate` only, so that their sums would do."""
        return "rows"

    @property
    def weighs(self) -> bool:
        """Whether it is by their weights that the method combines messages, so that without them it is another."""
        return False

    @property
    def rounding(self) -> Rounding | None:
        """How coarsely updates travel up where the run's codec is native (Hush). None sends them as they are."""
        return None

    def first_sent(self, ctx: Context) -> Tree:
        """What a client that has sent nothing yet is taken to have sent, for positions since the `LAST` one."""
        return {}

    @property
    def turns(self) -> bool:
        """Whether the messages of each round lie in another space, so that nothing of them can be remembered."""
        return False

    @property
    def held(self) -> tuple[str, ...]:
        """The leaves of the server's state that hold one row for every client. Rows that change are committed."""
        return ()

    @property
    def drops_stragglers(self) -> bool:
        """Whether the message of a client that did not finish its work, on the shared model if any, is lost."""
        return False

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The leaves of the server's state that may overflow; in any other that is a collapse."""
        return ()

    def cohort_weights(self, server: ServerView) -> Tensor | None:
        """Weights [N] to sample the cohort by, where the method chooses it itself (AFL). Zero is never drawn."""
        return None

    def silent(self, server: ServerView) -> bool | Literal["up", "down"]:
        """Whether nothing travels in this round (L2SGD), or nothing up, or nothing down."""
        return False

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        """How much of a broadcast's leaf travels to each client [K], counted along the leaf's first axis.

        Leaves that are not named travel whole: this is for clients that hold some of them already.
        """
        return {}

    @property
    def refuses(self) -> Mapping[str, str]:
        """What the method cannot be run with, and why: settings of a run, other than by default.

        These may be "own_start", "trainers", "aggregator", "newcomers", "codec" (one that acts on updates) and
        "downlink"; "statistics" are running statistics of the model (BatchNorm), and "one_output" is a model that
        gives one number an example.
        """
        return {}

    def check_run(self, rounds: int, layout: Layout) -> None:
        """Refuse a run that is too short for a setting of the method, or a model that does not fit one."""

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """The models [K, d] whose training loss clients report before their work, where an aggregator asks."""
        return self.personal(down, state, local)


def whole(leaf: Tensor) -> int:
    """All of a leaf [K, ...] of a broadcast, as `Method.fetches` counts it."""
    return leaf.shape[1] if leaf.dim() > 1 else 1


def signed_power(c: Tensor, q: float) -> Tensor:
    """sign(c) |c|^q, the derivative of |c|^(q+1) / (q+1); at q = 0 the subgradient with sign(0) = 0.

    What is not a number stays so: to torch, sign(NaN) is 0.
    """
    return torch.where(c.isnan(), c, c.sign()) if q == 0 else c.sign() * c.abs().pow(q)


def clip_norm(g: Tensor, norm: float) -> Tensor:
    """Rows g [K, d] scaled down to the L2 norm `norm` where they are longer."""
    length: Tensor = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
    return g * (norm / length.clamp(min=norm))
