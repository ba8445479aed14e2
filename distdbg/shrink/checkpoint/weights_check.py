"""Compare the written bytes with the source's, read back through the header of the written file."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from distdbg.shrink.checkpoint.slicing import Piece
from distdbg.shrink.checkpoint.source import CheckpointSource, Folder
from distdbg.shrink.checkpoint.tensors import read_header, tensors_of

#: of each tensor, unless all of it is wanted: its first and its last bytes
_SAMPLE = 4096
_BLOCK = 4 << 20
_FROM_A_SERVER = 32
_BEGIN = 64
#: type in a safetensors header -> its format for struct
_FORMATS = {"F64": "<d", "F32": "<f", "F16": "<e", "BF16": "<H"}


def compared(
    source: CheckpointSource, folder: Path, taken: Sequence[Piece], *, everything: bool, file: str | None = None
) -> str:
    """`pass`, with what was compared, or `fail: …`. `file`: the one that was written; None for a model's own."""
    written = (read_header(Folder(folder), file) if file else tensors_of(Folder(folder))) or {}
    for piece in taken:
        there = written.get(piece.name)
        if there is None or (there.dtype, there.shape, there.length) != (piece.dtype, piece.shape, piece.length):
            return f"fail: {piece.name} is not in what was written as it should be"
    # Each range asked of a server costs a round trip: some tensors of each model stand for all.
    step = 1 if everything or isinstance(source, Folder) else max(1, len(taken) // _FROM_A_SERVER)
    chosen = taken[::step]
    count = 0
    for name, group in groupby(chosen, key=lambda p: p.source.file):
        with source.open(name) as a:
            for piece in group:
                there = written[piece.name]
                with Folder(folder).open(there.file) as b:
                    for start, at, length in _samples(piece, everything):
                        if a.read(start, length) != b.read(there.start + at, length):
                            return f"fail: {piece.name} differs from {piece.source.name} in the source"
                        count += length
    if everything:
        return "pass"
    return f"pass; {count} bytes compared, the first and last of each range of {len(chosen)} of {len(taken)} tensors"


def only_nan(folder: Path) -> bool:
    """Whether each tensor of floating point numbers in a checkpoint begins with nothing but NaN."""
    tensors = [t for t in (tensors_of(Folder(folder)) or {}).values() if t.dtype in _FORMATS and t.length]
    for tensor in tensors:
        with Folder(folder).open(tensor.file) as file:
            begin = file.read(tensor.start, min(_BEGIN, tensor.length))
        if not all(_is_nan(tensor.dtype, value) for (value,) in struct.iter_unpack(_FORMATS[tensor.dtype], begin)):
            return False
    return bool(tensors)


def _is_nan(dtype: str, value: float) -> bool:
    if dtype == "BF16":  # the upper half of a float32, which struct does not know
        (value,) = struct.unpack("<f", struct.pack("<I", int(value) << 16))
    return math.isnan(value)


def _samples(piece: Piece, everything: bool) -> list[tuple[int, int, int]]:
    """(byte in the source file, byte in the written tensor, length)"""
    found = []
    at = 0
    for start, length in piece.ranges:
        if everything:
            found += [(start + i, at + i, min(_BLOCK, length - i)) for i in range(0, length, _BLOCK)]
        else:
            first = min(_SAMPLE, length)
            last = min(_SAMPLE, length - first)
            found += [(start, at, first), (start + length - last, at + length - last, last)]
        at += length
    return found
