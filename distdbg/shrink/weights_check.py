"""The bytes that were written, against the source's; read back through the header of the written file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distdbg.shrink.checkpoint import tensors_of
from distdbg.shrink.slicing import Piece
from distdbg.shrink.source import Folder, Source

#: of each tensor, unless all of it is wanted: its first and its last bytes
_SAMPLE = 4096
_BLOCK = 4 << 20


def compared(source: Source, folder: Path, taken: Sequence[Piece], *, everything: bool) -> str:
    """`pass`, with what was compared, or `fail: …`."""
    written = tensors_of(Folder(folder)) or {}
    count = 0
    for piece in taken:
        there = written.get(piece.name)
        if there is None or (there.dtype, there.shape, there.length) != (piece.dtype, piece.shape, piece.length):
            return f"fail: {piece.name} is not in what was written as it should be"
        with source.open(piece.source.file) as a, Folder(folder).open(there.file) as b:  # type: ignore[attr-defined]
            for start, at, length in _samples(piece, everything):
                if a.read(start, length) != b.read(there.start + at, length):
                    return f"fail: {piece.name} differs from {piece.source.name} in the source"
                count += length
    return "pass" if everything else f"pass; {count} bytes compared, the first and last of each range of each tensor"


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
