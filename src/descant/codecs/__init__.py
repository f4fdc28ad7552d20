"""How a message becomes bytes and back."""

from descant.codecs.base import Codec, UpdateCodec
from descant.codecs.native import Float16, Native
from descant.codecs.topk import TopK
from descant.errors import CodecError

CODECS: dict[str, type[Codec]] = {c.name: c for c in (Native, Float16, TopK)}

__all__ = ["CODECS", "Codec", "CodecError", "Float16", "Native", "TopK", "UpdateCodec"]
