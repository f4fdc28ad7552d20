"""Whether the hooks of a method return what the engine takes: by types and shapes, and no device is waited for."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from torch import Tensor

from descant.aggregators import Aggregator, Mean
from descant.engine.unchanged import parts
from descant.errors import SettingError
from descant.fields import of_descant
from descant.hooks import refusal
from descant.mail import LAST
from descant.methods import Method, PerClient
from descant.saying import HOW_TO_SEND
from descant.trees import Tree


def message_and_state(method: Method, given: Any, state: Tree, clients: int) -> tuple[Tree, Tree]:
    """What `client` returned for so many clients, which had this `state`."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(isinstance(t, Mapping) for t in given):
        what = "two dicts, (message, state): what to send, {} for nothing, and the clients' new state"
        raise refusal(_named(method, "client"), given, what)
    for place, tree in zip(("message", "state"), given, strict=True):
        _check_leaves(method, "client", tree, f" as {place}", clients)
    message, new = given
    _check_same(method, "client", state, new)
    # A method may send other leaves in other rounds.
    if message and method.sends and not method.sends.keys() & message.keys():
        has = f"the message has {_listed(message)}"
        raise SettingError(
            f"`sends` of {type(method).__name__} names {_listed(method.sends)}, and {has}: let it name leaves that "
            f"{_named(method, 'client')} sends, as in {HOW_TO_SEND}"
        )
    if not message and _expects(method):
        raise SettingError(
            f"the hook {_named(method, 'client')} sent nothing, and {_named(method, 'server')} is called only with "
            "messages: let it return what to send. If clients never send, write mute: ClassVar[bool] = True in the "
            "class; if they do not in some rounds, say so by the hook silent"
        )
    return message, new


def _expects(method: Method) -> bool:
    """Whether a user's own server waits for messages in every round."""
    cls = type(method)
    mute = method.mute or cls.silent is not Method.silent
    return not (mute or of_descant(cls) or cls.server is Method.server)


def server_state(method: Method, given: Any, before: Collection[str]) -> Tree:
    """The state that `server` returned, which had these leaves `before`."""
    state = state_of(method, "server", given, before)
    _check_same(method, "server", before, state)
    return state


def check_combined(method: Method, aggregator: Aggregator) -> None:
    """Refuse an aggregator that a user's own server cannot call: tables would name it, and it changes nothing.

    One that calls it in some rounds alone has a use for it.
    """
    if type(aggregator) is Mean:
        return
    for part in (each for each in parts(method) if isinstance(each, Method)):
        if of_descant(cls := type(part)) or _reads_aggregate(cls):
            continue
        raise SettingError(
            f"the hook {cls.__name__}.server does not call `aggregate`, so that aggregator = "
            f"{aggregator.name!r} would change nothing: combine the messages by aggregate({{'x': messages['x']}}), "
            "or leave the aggregator out"
        )


def _reads_aggregate(cls: type) -> bool:
    """Whether the function `server` of a class does anything with `aggregate`."""
    server = inspect.unwrap(vars(cls).get("server", Method.server))
    if not isinstance(server, FunctionType) or server is Method.server:
        return True  # it is inherited, or no function of Python's
    if server.__code__.co_argcount < 4 or server.__code__.co_flags & inspect.CO_VARARGS:
        return True
    name = server.__code__.co_varnames[3]
    read = (step.argval for step in dis.get_instructions(server) if step.opname.startswith(("LOAD", "MAKE_CELL")))
    return any(name == each or (isinstance(each, tuple) and name in each) for each in read)


def called(aggregator: Aggregator) -> str:
    """The hook by which an aggregator combines."""
    cls = type(aggregator)
    return f"{cls.__name__}.{'__call__' if cls.combine is Aggregator.combine else 'combine'}"


def combined_of(aggregator: Aggregator, given: Any, leaves: Mapping[str, Tensor]) -> Tree:
    """What a user's own aggregator made of the leaves [S, ...]: the same ones without the first axis."""
    if not of_descant(type(aggregator)):
        hook = called(aggregator)
        if not isinstance(given, Mapping) or (missing := leaves.keys() - given.keys()):
            named = f", '{min(missing)}' too" if isinstance(given, Mapping) else ""
            raise refusal(hook, given, f"a dict of what it made of every leaf of the messages{named}")
        for name, leaf in leaves.items():
            made = given[name]
            if not isinstance(made, Tensor) or made.shape != leaf.shape[1:]:
                shape = f"of shape {tuple(leaf.shape[1:])}, as each of the {len(leaf)} messages has"
                raise refusal(hook, made, f"a tensor {shape}", f" for '{name}'")
    combined: Tree = given
    return combined


def check_references(method: Method, down: Mapping[str, Any]) -> None:
    """Refuse a method whose messages are said to move away from what its broadcast does not have."""
    for name, sent in method.sends.items():
        for of in (each for each in (sent.of, sent.beside) if each != LAST and each not in down):
            how = "moved away from" if of == sent.of else "lies beside"
            raise SettingError(
                f"`sends` of {type(method).__name__} says that '{name}' {how} '{of}' of the broadcast, which has "
                f"{_listed(down)}: let it name a leaf that {_named(method, 'broadcast')} returns"
            )


def heard_of(method: Method, given: Any, state: Tree, clients: int) -> Tree:
    """What `hear` returned for so many clients, which had this `state`."""
    new = state_of(method, "hear", given, clients=clients)
    _check_same(method, "hear", state, new)
    return new


def first_state(
    method: Method,
    hook: str,
    given: Any,
    ours: Collection[str],
    held: Collection[str] = (),
    clients: int | None = None,
) -> Tree:
    """The state that begins a run; no leaf belongs to one of `ours`, who keep theirs beside the method's."""
    state = state_of(method, hook, given, held, clients)
    if taken := [name for name in state if name.partition(".")[0] in ours]:
        raise SettingError(f"the hook {_named(method, hook)}: the name '{taken[0]}' is taken; choose another")
    return state


def broadcast_of(method: Method, given: Any) -> dict[str, Tensor | PerClient]:
    """What `broadcast` returned."""
    if not isinstance(given, Mapping):
        raise refusal(_named(method, "broadcast"), given, "a dict of tensors, what travels down; {} for nothing")
    for name, leaf in given.items():
        if not isinstance(leaf, Tensor | PerClient):
            raise refusal(_named(method, "broadcast"), leaf, "a tensor", f" for '{name}'")
    down: dict[str, Tensor | PerClient] = given  # type: ignore[assignment]
    return down


def state_of(
    method: Method, hook: str, given: Any, before: Collection[str] = (), clients: int | None = None
) -> Tree:
    """The state that a hook returned; `before` are leaves that it must have."""
    if not isinstance(given, Mapping):
        raise refusal(_named(method, hook), given, "a dict of tensors by name, the state")
    _check_leaves(method, hook, given, "", clients)
    if missing := sorted(set(before) - set(given)):
        raise refusal(
            _named(method, hook), given, f"the new state with all of its leaves, {', '.join(missing)} too"
        )
    state: Tree = given  # type: ignore[assignment]
    return state


def models_of(method: Method, hook: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """The models that a hook returned, of this shape."""
    if not isinstance(given, Tensor) or tuple(given.shape) != shape:
        named = "[K, d]" if len(shape) == 2 else "[d]"
        raise refusal(_named(method, hook), given, f"a tensor {named}, here of shape {shape}")
    return given


def _check_leaves(method: Method, hook: str, tree: Mapping[Any, Any], place: str, clients: int | None) -> None:
    for name, leaf in tree.items():
        if not isinstance(leaf, Tensor):
            raise refusal(_named(method, hook), leaf, "a tensor", f" for '{name}'{place}")
        if clients is not None and (not leaf.dim() or len(leaf) != clients):
            raise refusal(_named(method, hook), leaf, f"a row a client, {clients} here", f" for '{name}'{place}")


def _check_same(method: Method, hook: str, state: Collection[str], new: Collection[str]) -> None:
    if set(state) != set(new):
        given = f"the hook {_named(method, hook)} was given the state {sorted(state)} and returned {sorted(new)}"
        first = "server_start" if hook == "server" else "client_start"
        raise SettingError(f"{given}: it must return the same leaves, those that {first} begins with")


def _listed(leaves: Mapping[str, Any]) -> str:
    return ", ".join(f"'{name}'" for name in leaves) or "no leaves"


def _named(method: Method, hook: str) -> str:
    return f"{type(method).__name__}.{hook}"
