"""Docstrings as Markdown: formulas that read well without a script from elsewhere, examples, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SIGNS = {"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "||": "‖", " - ": " − ", "...": "…"}
_INDEX = r"(\{[^}]+\}|\([^)]*\)|-?[A-Za-z0-9.]*[A-Za-z0-9])"
_GREEK = "alpha|beta|gamma|theta|eta|kappa|lam|mu|nu|xi|pi|rho|sigma|tau|phi|psi|zeta"
_BASE = rf"(?:(?<![A-Za-z0-9_])(?P<base>[A-Za-z]|min|max|sum|mean|argmin|argmax|{_GREEK})|(?P<end>[)\]‖]))"
_SUB = re.compile(_BASE + "_" + _INDEX)
_LINKED = re.compile(r"(?<= )\{: #(\S+) \}$", flags=re.MULTILINE)
_SUP = re.compile(r"\^" + _INDEX)


def prose(text: str) -> str:
    """Paragraphs as they are, indented ones and examples as code."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(filter(None, map(_block, blocks)))


def _block(block: str) -> str:
    if block.startswith(">>> "):
        return f"```pycon\n{block}\n```"
    if block.startswith("    "):
        lines = (line.removeprefix("    ") for line in block.split("\n"))
        return "```text\n" + "\n".join(lines) + "\n```"
    return inline(" ".join(block.split()))


def inline(text: str) -> str:
    """Text in which `code` stays and formulas are set: f_k becomes f with an index."""
    pieces = text.split("`")
    return "".join(f"`{piece}`" if i % 2 else _set(piece) for i, piece in enumerate(pieces))


def _set(text: str) -> str:
    for plain, sign in _SIGNS.items():
        text = text.replace(plain, sign)
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\*\[\]|])", lambda found: f"&#{ord(found[1])};", text)
    text = re.sub(r"&#42;&#42;(.+?)&#42;&#42;", r"**\1**", text)
    text = _SUB.sub(lambda m: f"{m['base'] or m['end']}<sub>{_inner(m[3])}</sub>", text)
    return _SUP.sub(lambda m: f"<sup>{_inner(m[1])}</sup>", text).replace("_", "&#95;")


def _inner(index: str) -> str:
    return index[1:-1] if index[0] in "{(" else index


def formula(text: str) -> tuple[str, str, str]:
    """A docstring's heading, what follows the colon of its first line (the objective), and the rest."""
    first, _, rest = text.partition("\n\n")
    head, colon, objective = " ".join(first.split()).partition(": ")
    return inline(head if colon else ""), inline(objective if colon else head), prose(rest)


def anchor(name: str) -> str:
    """Where a heading is linked: its name, in what an address may hold."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower().replace("+", "plus"))


def heading(level: int, name: str) -> str:
    return f"{'#' * level} {name} {{: #{anchor(name)} }}"


def distinct(text: str) -> str:
    """Text in which no two headings are linked alike: the second of a name gets a number."""
    seen: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        seen[found[1]] = seen.get(found[1], 0) + 1
        return found[0] if seen[found[1]] == 1 else f"{{: #{found[1]}-{seen[found[1]]} }}"

    return _LINKED.sub(numbered, text)


def code(text: str) -> str:
    return f"`{text}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
