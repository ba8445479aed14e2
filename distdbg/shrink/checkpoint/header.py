"""A safetensors header, read without trust: bytes to tensors and their places in the file.

The format: 8 bytes with the header's length (little endian), that many bytes of JSON, then the data, to which the
offsets in the JSON are relative (https://huggingface.co/docs/safetensors/index#format).
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

from distdbg.errors import EvidenceUnreadable

#: bits an element; those below 8 are packed
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
#: safetensors itself refuses longer ones
LONGEST_HEADER = 100_000_000
PREFIX = 8


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file; `start` counts bytes from the beginning of the file, `length` is in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    length: int


def header_length(file: str, first: bytes, size: int) -> int:
    """The header's length in bytes from a file's first eight; `size` is the whole file's.

    Raises EvidenceUnreadable where the file cannot be safetensors.
    """
    if len(first) < PREFIX or size < PREFIX + 2:
        raise _bad(file, f"it has only {size} bytes, which is no safetensors file")
    length = int.from_bytes(first[:PREFIX], "little")
    if length > LONGEST_HEADER:
        raise _bad(file, f"its header claims {length} bytes, more than safetensors allows ({LONGEST_HEADER})")
    if PREFIX + length > size:
        raise _bad(file, f"its header claims {length} bytes, but the file has only {size}: it is cut short")
    return length


def parse_header(file: str, text: bytes, size: int) -> dict[str, Tensor]:
    """Tensors by name, in the order of their data; every offset has been checked against the file's `size`.

    Raises EvidenceUnreadable for anything that does not add up: unknown types, lengths that are not shape times
    element size, places outside the file, tensors that overlap, a name that comes twice.
    """
    try:
        entries = json.loads(text, object_pairs_hook=_no_name_twice)
    except _TwiceError as twice:
        raise _bad(file, f"its header names {twice.args[0]!r} twice") from None
    except (ValueError, RecursionError):
        raise _bad(file, "its header is not JSON") from None
    if not isinstance(entries, dict):
        raise _bad(file, "its header is no JSON object")
    first = PREFIX + len(text)
    found = [_tensor(file, name, entry, first, size) for name, entry in entries.items() if name != "__metadata__"]
    found.sort(key=lambda t: (t.start, t.length))
    for before, after in itertools.pairwise(found):
        if before.start + before.length > after.start:
            raise _bad(file, f"the data of {before.name!r} and {after.name!r} overlap")
    return {t.name: t for t in found}


def render_header(tensors: list[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """The first bytes of a file that holds `tensors` (name, dtype, shape, length in bytes) one after the other."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape, length in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(PREFIX, "little") + text


def _tensor(file: str, name: str, entry: object, first: int, size: int) -> Tensor:
    if not isinstance(entry, dict):
        raise _bad(file, f"{name!r} in its header is no JSON object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _bad(file, f"{name!r} has the unknown element type {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or not _counts(shape):
        raise _bad(file, f"{name!r} has the shape {str(shape)[:80]}, which is no list of sizes")
    if not isinstance(offsets, list) or not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(file, f"{name!r} has the data offsets {str(offsets)[:80]}, which are no range")
    begin, end = first + offsets[0], first + offsets[1]
    if end > size:
        raise _bad(
            file, f"{name!r} ends at byte {end}, but the file has only {size}: it is cut short or its header lies"
        )
    bits = math.prod(shape) * BITS[dtype]
    if bits != (end - begin) * 8:
        raise _bad(file, f"{name!r} has {end - begin} bytes, but {dtype} {list(shape)} needs {bits / 8:g}")
    return Tensor(name, dtype, tuple(shape), file, begin, end - begin)


def _counts(values: list[Any]) -> bool:
    return all(type(v) is int and 0 <= v < 2**63 for v in values)


class _TwiceError(Exception):
    pass


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(n for n in names if names.count(n) > 1))
    return found


def _bad(file: str, why: str) -> EvidenceUnreadable:
    return EvidenceUnreadable(f"{file}: {why}", "Fetch the file again, or compare its checksum with its source's.")
