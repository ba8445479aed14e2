"""Read a safetensors checkpoint's tensors from its headers alone, sharded or not; nothing in them is trusted.

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
from distdbg.shrink.checkpoint.source import CheckpointSource, is_relative_name

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

    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise _bad(file, f"its header names {next(n for n in names if names.count(n) > 1)!r} twice")
        return dict(pairs)

    try:
        entries = json.loads(text, object_pairs_hook=each_once)
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
        cut = "it is cut short or its header lies"
        raise _bad(file, f"{name!r} ends at byte {end}, but the file has only {size}: {cut}")
    bits = math.prod(shape) * BITS[dtype]
    if bits != (end - begin) * 8:
        raise _bad(file, f"{name!r} has {end - begin} bytes, but {dtype} {list(shape)} needs {bits / 8:g}")
    return Tensor(name, dtype, tuple(shape), file, begin, end - begin)


def _counts(values: list[Any]) -> bool:
    return all(type(v) is int and 0 <= v < 2**63 for v in values)


def _bad(file: str, why: str) -> EvidenceUnreadable:
    return EvidenceUnreadable(f"{file}: {why}", "Fetch the file again, or compare its checksum with its source's.")


ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def tensors_of(source: CheckpointSource) -> dict[str, Tensor] | None:
    """Every tensor by name; None where the source has no safetensors at all.

    Raises EvidenceUnreadable where the index and the files do not agree.
    """
    index = index_file(source.files())
    if index is not None:
        return _sharded(source, index)
    files = [name for name in source.files() if _is_weights(name)]
    if ONE_FILE in files:
        files = [ONE_FILE]  # beside it may lie the same weights in another form
    if not files:
        return None
    found: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in read_header(source, file).items():
            if name in found:
                raise EvidenceUnreadable(
                    f"{source.where}: {name!r} is in {found[name].file} and in {file}, and no index says which counts",
                    "Leave only the files of one checkpoint in the folder.",
                )
            found[name] = tensor
    return found


def index_file(files: list[str]) -> str | None:
    """The index of a sharded checkpoint. A variant's (`model.fp16.…`) only where there is no other."""
    found = [name for name in files if name.endswith(".safetensors.index.json") and "/" not in name]
    return INDEX if INDEX in found else next(iter(found), None)


def read_header(source: CheckpointSource, file: str) -> dict[str, Tensor]:
    """The tensors of one file; reads its header and nothing else."""
    with source.open(file) as reader:
        first = reader.read(0, min(PREFIX, reader.size))
        length = header_length(file, first, reader.size)
        return parse_header(file, reader.read(PREFIX, length), reader.size)


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name and not name.startswith(("adapter", "consolidated"))


def _sharded(source: CheckpointSource, index: str) -> dict[str, Tensor]:
    try:
        places = json.loads(source.small(index) or b"")["weight_map"]
        files = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EvidenceUnreadable(f"{index} is no index: it has no 'weight_map' of names to files", _AGAIN) from None
    found: dict[str, Tensor] = {}
    for file in files:
        _refuse_a_bad_name(index, file)
        if file not in source.files():
            raise EvidenceUnreadable(f"{index} names {file!r}, which is not in {source.where}", _AGAIN)
        inside = read_header(source, file)
        wanted = [name for name, where in places.items() if where == file]
        absent = [name for name in wanted if name not in inside]
        if absent:
            raise EvidenceUnreadable(f"{index} says that {absent[0]!r} is in {file}, but it is not there", _AGAIN)
        found.update({name: inside[name] for name in wanted})
    return found


def _refuse_a_bad_name(index: str, file: object) -> None:
    if not isinstance(file, str):
        raise EvidenceUnreadable(f"{index} names {str(file)[:80]} as a file", _AGAIN)
    if not is_relative_name(file) or not file.endswith(".safetensors"):
        raise EvidenceUnreadable(f"{index} names {file!r} as a shard, which is no file beside it", _AGAIN)


_AGAIN = "Fetch the model again; nothing was written."
