"""Whether the hooks of a method return what the engine takes: by types and shapes, and no device is waited for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from descant.errors import SettingError
from descant.methods import Method
from descant.trees import Tree


def message_and_state(method: Method, given: Any, clients: int) -> tuple[Tree, Tree]:
    """What `client` returned for so many clients."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(isinstance(t, Mapping) for t in given):
        what = "two dicts, (message, state): what to send, {} for nothing, and the clients' new state"
        raise _refusal(method, "client", given, what)
    for place, tree in zip(("message", "state"), given, strict=True):
        _check_leaves(method, "client", tree, f" as {place}", clients)
    message, state = given
    return message, state


def state_of(
    method: Method, hook: str, given: Any, before: Collection[str] = (), clients: int | None = None
) -> Tree:
    """The state that a hook returned; `before` are leaves that it must have."""
    if not isinstance(given, Mapping):
        raise _refusal(method, hook, given, "a dict of tensors, the new state")
    _check_leaves(method, hook, given, "", clients)
    if missing := sorted(set(before) - set(given)):
        raise _refusal(method, hook, given, f"the new state with all of its leaves, {', '.join(missing)} too")
    state: Tree = given  # type: ignore[assignment]
    return state


def models_of(method: Method, hook: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """The models that a hook returned, of this shape."""
    if not isinstance(given, Tensor) or tuple(given.shape) != shape:
        named = "[K, d]" if len(shape) == 2 else "[d]"
        raise _refusal(method, hook, given, f"a tensor {named}, here of shape {shape}")
    return given


def _check_leaves(method: Method, hook: str, tree: Mapping[Any, Any], place: str, clients: int | None) -> None:
    for name, leaf in tree.items():
        if not isinstance(leaf, Tensor):
            raise _refusal(method, hook, leaf, "a tensor", f" for '{name}'{place}")
        if clients is not None and (not leaf.dim() or len(leaf) != clients):
            raise _refusal(method, hook, leaf, f"a row a client, {clients} here", f" for '{name}'{place}")


def _refusal(method: Method, hook: str, given: Any, what: str, where: str = "") -> SettingError:
    returned = f"the hook {type(method).__name__}.{hook} returned {_told(given)}{where}"
    return SettingError(f"{returned}: it must return {what}")


def _told(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    if isinstance(given, Mapping):
        return f"one dict ({', '.join(map(str, given)) or 'empty'})"
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)} ({', '.join(type(one).__name__ for one in given)})"
    return "nothing (None)" if given is None else f"a {type(given).__name__}"
