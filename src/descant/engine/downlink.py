"""The way of a broadcast: as it is, or as how it moved since everybody heard it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from descant.codecs import Codec, Native
from descant.context import Context
from descant.engine.links import REFUSED, Broadcast, through
from descant.engine.records import CollapseError
from descant.engine.returned import broadcast_of, state_of
from descant.engine.statistics import STATISTICS
from descant.errors import NotTogetherError
from descant.mail import Form, Mail, not_finite
from descant.methods import Method, PerClient, ServerView
from descant.methods.base import whole
from descant.mirrors import host, sent, spread
from descant.trees import Tree, under, within

SAID = "said so far"  # a leaf of what the server tells: the bytes of all that it said. It is on nobody's bill
DOWNLINK = "downlink"  # the owner of what both ends keep for it
HEARD = f"{DOWNLINK}.heard"  # how much of all that was said a client had heard when it took part last


class Downlink:
    """How the server's broadcasts reach clients, and what that takes.

    A codec of plain numbers rounds each broadcast by itself. With one of updates everybody keeps what they know of
    a broadcast, u, from its start on. After each step, which makes it b, the server says C(b - u), and all go on
    from u + what arrives (EF21-P, Gruntkowska et al., 2023). Clients hear and answer u. Where the server adds up
    how they moved, what was left out stays in b, as with error feedback on the server. Who missed some of what was
    said fetches that, or u whole where it is shorter.
    """

    def __init__(self, codec: Codec, ctx: Context, first: Broadcast) -> None:
        self.codec, self.device = codec, ctx.x0.device
        self._known: Tree = {}  # u
        self._memory: Tree = {}  # of the codec
        self._said = 0  # bytes
        if codec.updates:
            self._known = {name: leaf.clone() for name, leaf in moving(first).items()}
            self._memory = codec.memory({_address(name): leaf[None] for name, leaf in self._known.items()})

    def tree(self) -> Tree:
        """What is kept, for a commit."""
        if not self.codec.updates:
            return {}
        said = {"said": torch.tensor(self._said)}
        return said | under("known", self._known) | under("memory", self._memory)

    def restore(self, tree: Tree) -> None:
        if self.codec.updates:
            self._known, self._said = within("known", tree), int(tree["said"])
            self._memory = within("memory", tree)

    def heard(self, ctx: Context, down: Broadcast) -> dict[str, Tensor | PerClient]:
        """A broadcast as clients hear it."""
        if not self.codec.updates:
            return through(self.codec, ctx.of_server(), down)
        self._check(moving(down))
        return {**down, **self._known, SAID: sent(torch.tensor(self._said), self.device)}

    def answered(self, ctx: Context, reply: Broadcast) -> dict[str, Tensor | PerClient]:
        """A reply as its clients hear it. Codecs of updates leave it as it is: nobody knows another one."""
        return dict(reply) if self.codec.updates else through(self.codec, ctx.of_server(), reply)

    def say(self, ctx: Context, down: Broadcast) -> None:
        """After a step: say how the broadcast moved, with a codec of updates; `down` is that of the next round."""
        now = moving(down)
        self._check(now)
        leaves = {_address(name): leaf[None] for name, leaf in now.items()}
        known = {_address(name): leaf[None] for name, leaf in self._known.items()}
        speaker, server = torch.zeros(1, dtype=torch.int64, device=self.device), ctx.of_server()
        mail = replace(Mail.of(leaves, speaker, server), references=known, since_last=tuple(known))
        try:
            memory, payloads = self.codec.encode(server, self._memory, mail)
            blank = replace(mail, leaves=mail.form.blank(1, self.device))
            _, arrived = self.codec.decode(server, {}, payloads, blank)
        except torch.OutOfMemoryError:
            raise
        except REFUSED as error:
            raise CollapseError(f"the server's broadcast cannot be encoded: {error}") from error
        self._memory, self._said = memory, self._said + len(payloads[0])
        self._known = {name: arrived[_address(name)][0] for name in self._known}
        if (name := not_finite(self._known)) is not None:
            raise CollapseError(f"what clients hear of the broadcast '{name}' is not finite")

    def _check(self, now: Tree) -> None:
        """Refuse a broadcast whose leaves are not those that everybody knows."""
        before, after = ({name: tuple(leaf.shape) for name, leaf in tree.items()} for tree in (self._known, now))
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                shapes = (str(tree.get(name, "not there")) for tree in (before, after))
                raise NotTogetherError(
                    "downlink",
                    f"'{self.codec.name}' says how a broadcast moves, and the leaf '{name}' of this one was "
                    f"{' and is '.join(shapes)}: broadcast the same leaves in all rounds, or use a codec of plain "
                    "numbers",
                )


def moves(name: str, leaf: Tensor | PerClient) -> bool:
    """Whether the server may say how a leaf of its broadcast moved: a vector of numbers, the same for all.

    Running statistics travel whole, as they do on their way up.
    """
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() > 0 and name != STATISTICS


def moving(down: Broadcast) -> Tree:
    """The leaves of a broadcast of which the server may say how they moved."""
    return {name: leaf for name, leaf in down.items() if isinstance(leaf, Tensor) and moves(name, leaf)}


def said_to(who: Tensor, down: Broadcast) -> Tensor:
    """The bytes [K] of all that the server has said so far, to each of the clients `who` that hear it."""
    said = down[SAID]
    assert isinstance(said, Tensor)
    return spread(said, len(who))


def bytes_of(codec: Codec, seen: Tree, fetched: Mapping[str, Tensor], missed: Tensor | None) -> Tensor:
    """The bytes [K] that a broadcast, `seen` by K clients, takes to each: its leaves, or as much as is `fetched`.

    Of leaves that clients know as they were, what they `missed` (bytes [K]) travels where that is shorter.
    """
    plain = Native() if codec.updates else codec
    total = anew = torch.zeros(1, dtype=torch.int64)
    for name, leaf in seen.items():
        size = plain.size(Form.of({name: leaf}))
        assert size is not None
        amount = size if name not in fetched else size * host(fetched[name]) // max(1, whole(leaf))
        if missed is not None and moves(name, leaf[0]):
            anew = anew + amount
        else:
            total = total + amount
    return total if missed is None else total + torch.minimum(missed, anew)


def check(codec: Codec, method: Method, ctx: Context) -> None:
    """Refuse a codec of updates where the server cannot say how its broadcast moves; `ctx` is that of the start."""
    if not codec.updates or method.mute:
        return
    server = ctx.of_server()
    state = state_of(method, "server_start", method.server_start(server), method.held)
    first = broadcast_of(method, method.broadcast(ServerView(state, ctx.at(1).of_server())))
    said = f"'{codec.name}' says how a broadcast moves, and the method '{method.name}'"
    plain = "use a codec of plain numbers, such as native or float16"
    if method.turns:
        raise NotTogetherError("downlink", f"{said} speaks of another subspace in each round: {plain}")
    if any(isinstance(leaf, PerClient) for leaf in first.values()):
        raise NotTogetherError("downlink", f"{said} tells every client something of its own: {plain}")
    if codec.copies({"leaf": torch.zeros(1, 8)}):
        absent = "repeats what it said before, which a client that was not there does not have"
        raise NotTogetherError("downlink", f"'{codec.name}' {absent}: take another codec, such as stc or top-k")
    if method.unbounded:
        raise NotTogetherError("downlink", f"{said} lets its state overflow: {plain}")
    if not moving(first):
        raise NotTogetherError("downlink", f"{said} broadcasts no vector: {plain}")
    for name, leaf in moving(first).items():
        if (why := codec.unsettled(leaf.numel())) is not None:
            raise NotTogetherError(
                "downlink",
                f"'{codec.name}' says how the broadcast '{name}' moved since it was heard last, and the error of "
                f"that may grow from round to round: {why}",
            )


def _address(name: str) -> str:
    """What a leaf is called in what the server says, so that its draws are not those of a client's message."""
    return f"broadcast {name}"
