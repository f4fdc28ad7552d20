"""The signature and the docstring of `simulate`, as the declaration of the settings has them.

They stand in the source, where every editor and type checker reads them. `python docs/simulate_text.py` writes them
anew after a setting was added or changed; a test fails where that was forgotten.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

from descant.experiment.declaration import Call, declared

SOURCE = Path(__file__).parents[1] / "src/descant/experiment/simulate.py"
_WIDTH = 116
_SIGNATURE = re.compile(r"(?<=    method: Method \| Spec,\n    \*,\n).*?(?=\) -> Run:)", re.DOTALL)
_ARGUMENTS = re.compile(
    r"(?<=        method: how they learn together, by object, name or spec\.\n).*?(?=    \"\"\")", re.DOTALL
)


def written(source: str) -> str:
    """The source of `simulate` with the signature and the docstring that the declaration asks for."""
    types = {field.name: str(field.type) for field in fields(Call)}
    for name, hint in get_type_hints(Call).items():
        if get_origin(hint) is Literal:  # its words say more than the name that it has
            types[name] = f"Literal[{', '.join(map(_literal, get_args(hint)))}]"
    signature, arguments = [], []
    for name, entry in declared(Call).items():
        default = "" if entry.required else f" = {_literal(entry.default)}"
        signature.append(f"    {name}: {entry.accepts or types[name]}{default},\n")
        text = wrap(f"{name}: {entry.help}", _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
        arguments.append("\n".join(text) + "\n")
    for place, lines in ((_SIGNATURE, signature), (_ARGUMENTS, arguments)):
        source, found = place.subn(lambda _, lines=lines: "".join(lines), source, count=1)
        assert found, "simulate.py does not look as it should: its three first arguments have changed"
    return source


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    SOURCE.write_text(written(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
