"""How a message becomes bytes and back."""

from descant.codecs.base import Codec, Leaf, UpdateCodec
from descant.codecs.dgc import DGC
from descant.codecs.lbgm import LBGM
from descant.codecs.native import BFloat16, Float16, Float32, Native
from descant.codecs.qsgd import QSGD
from descant.codecs.randomk import RandomK
from descant.codecs.sign import Sign
from descant.codecs.sketch import CountSketch
from descant.codecs.ternary import SparseTernary
from descant.codecs.topk import TopK
from descant.codecs.uniform import Uniform
from descant.errors import CodecError

_ALL: tuple[type[Codec], ...] = (
    *(Native, Float32, Float16, BFloat16),
    *(Uniform, QSGD, TopK, RandomK, Sign, SparseTernary, DGC, CountSketch, LBGM),
)
CODECS: dict[str, type[Codec]] = {c.name: c for c in _ALL}

__all__ = [
    "CODECS",
    "DGC",
    "LBGM",
    "QSGD",
    "BFloat16",
    "Codec",
    "CodecError",
    "CountSketch",
    "Float16",
    "Float32",
    "Leaf",
    "Native",
    "RandomK",
    "Sign",
    "SparseTernary",
    "TopK",
    "Uniform",
    "UpdateCodec",
]
