"""Files that carry a checksum (blake2b): the one place where a run's files are read.

Whatever is wrong with one (cut off, a byte that flipped, edited by hand, no file at all, claims without end) is a
`DamagedError` that names it and says what can be done. JSON carries its checksum as its last member, a safetensors
file as the first entry of its metadata; both cover every byte of the file. Other files have theirs in a list.
"""

from descant.sealed.objects import ends_sealed, read_json, write_json
from descant.sealed.plain import DIGEST, check_entry, damaged, entry_of, hash_of, read_entry
from descant.sealed.tensors import (
    Digests,
    Placed,
    begins_sealed,
    header_of,
    open_tensors,
    read_tensors,
    row_digests,
    seal,
    write_tensors,
)

__all__ = [
    "DIGEST",
    "Digests",
    "Placed",
    "begins_sealed",
    "check_entry",
    "damaged",
    "ends_sealed",
    "entry_of",
    "hash_of",
    "header_of",
    "open_tensors",
    "read_entry",
    "read_json",
    "read_tensors",
    "row_digests",
    "seal",
    "write_json",
    "write_tensors",
]
