"""Read the text of a trace in pieces, plain or packed."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from distdbg.rundir import open_regular

_PIECE = 1 << 20


def pieces(path: Path) -> Iterator[str]:
    """Ends where the bytes do, or where they cannot be unpacked any more. Raises OSError."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with open_regular(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        for piece in _unpacked(raw) if packed else iter(lambda: raw.read(_PIECE), b""):
            yield decode(piece)


def _unpacked(raw: BinaryIO) -> Iterator[bytes]:
    with gzip.open(raw) as file:
        while True:
            try:
                piece = file.read1(_PIECE)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return
            if not piece:
                return
            yield piece
