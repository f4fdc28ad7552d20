"""How a message becomes bytes and back."""

from descant.codecs.base import Codec
from descant.codecs.native import Native

CODECS: dict[str, type[Codec]] = {c.name: c for c in (Native,)}

__all__ = ["CODECS", "Codec", "Native"]
