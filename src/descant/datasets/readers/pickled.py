"""Numbers out of a pickle, without unpickling.

A pickle is a program, and `pickle.load` runs it: whoever wrote the file can run anything. Even an Unpickler that
admits few names calls what they name. This reader calls nothing at all: it walks the opcodes with `pickletools`,
which only parses, and knows the dozen that build dicts, lists, tuples, numbers, text, bytes and numpy arrays.
The four names that such files contain are inert marks here; every other name and every other opcode is refused.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from descant.data.errors import DataError
from descant.datasets.readers.contents import contents_of

_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",  # how Python 3 writes bytes in old protocols
}
_DTYPES = ("u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8")
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
    "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


@dataclass(frozen=True)
class _Mark:
    """A name that the file mentions. Nobody calls it."""

    name: str


@dataclass
class _Shell:
    """An array or a dtype whose numbers come later, with BUILD."""

    kind: str
    value: Any = None


class _RefusedError(Exception):
    pass


def read_pickled(file: Path) -> Any:
    """The dict, list or array in a pickle of plain data; anything else is refused, and nothing is run."""
    try:
        return _finished(_walk(bytes(contents_of(file))))
    except _RefusedError as error:
        raise DataError(f"it is a pickle that {error}: only plain data is read from one", file=file) from None
    except DataError:
        raise
    except Exception as error:  # a damaged pickle: pickletools and the stack fail in many ways
        raise DataError(f"it is not a whole pickle ({type(error).__name__}: {error})", file=file) from error


def _walk(contents: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    for opcode, value, _ in pickletools.genops(contents):
        name, argument = opcode.name, cast(Any, value)
        if name in ("PROTO", "FRAME"):
            pass
        elif name == "STOP":
            return stack.pop()
        elif name == "MARK":
            marks.append(len(stack))
        elif name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("TUPLE", "LIST", "DICT"):
            items = _since(stack, marks)
            stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else _pairs(items))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            items = _since(stack, marks) if name == "APPENDS" else [stack.pop()]
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = _since(stack, marks) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            _expect(stack[-1], dict).update(_pairs(items))
        elif name == "GLOBAL":
            stack.append(_named(argument))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_named(f"{module} {attribute}"))
        elif name == "REDUCE":
            arguments, mark = stack.pop(), stack.pop()
            stack.append(_reduced(mark, _expect(arguments, tuple)))
        elif name == "BUILD":
            state = stack.pop()
            _build(_expect(stack[-1], _Shell), _expect(state, tuple))
        else:
            raise _RefusedError(f"uses {name}")
    raise EOFError("it does not end")


def _since(stack: list[Any], marks: list[int]) -> list[Any]:
    at = marks.pop()
    items = stack[at:]
    del stack[at:]
    return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _RefusedError(f"builds on a {type(value).__name__}")
    return value


def _named(name: str) -> _Mark:
    if name not in _NAMES:
        raise _RefusedError(f"names '{name.replace(' ', '.')}'")
    return _Mark(_NAMES[name])


def _reduced(mark: Any, arguments: tuple[Any, ...]) -> Any:
    """What the call in the file would give, made here from its arguments."""
    kind = _expect(mark, _Mark).name
    if kind == "array":
        return _Shell("array")
    if kind == "dtype":
        if arguments[0] not in _DTYPES:
            raise _RefusedError(f"has numbers of type {arguments[0]!r}")
        return _Shell("dtype", np.dtype(arguments[0]))
    if kind == "encode":
        return str(arguments[0]).encode("latin-1")
    raise _RefusedError(f"calls {kind}")


def _build(shell: _Shell, state: tuple[Any, ...]) -> None:
    if shell.kind == "dtype":
        if state[1] == ">":
            shell.value = shell.value.newbyteorder(">")
        return
    _, shape, dtype, fortran, raw = state
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    shell.value = _array(raw, tuple(shape), _expect(dtype, _Shell).value, bool(fortran))


def _array(raw: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool) -> npt.NDArray[Any]:
    flat = np.frombuffer(bytearray(raw), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _finished(value: Any, done: dict[int, Any] | None = None) -> Any:
    """The value with its arrays in their places. What occurs twice is walked once: a small file stays small."""
    done = {} if done is None else done
    if id(value) in done:
        return done[id(value)]
    found = value
    if isinstance(value, _Shell):
        found = value.value
    elif isinstance(value, _Mark):
        raise _RefusedError(f"holds the name '{value.name}' itself")
    elif isinstance(value, dict):
        found = {_text(key): _finished(item, done) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        found = [_finished(item, done) for item in value]
    done[id(value)] = found
    return found


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key
