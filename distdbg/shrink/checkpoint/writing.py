"""Pieces of a source's tensors into safetensors files, by byte ranges, one read for neighbours, resumable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from distdbg.shrink.checkpoint.header import render_header
from distdbg.shrink.checkpoint.slicing import Piece, joined
from distdbg.shrink.checkpoint.source import Source
from distdbg.shrink.checkpoint.tensors import INDEX, ONE_FILE
from distdbg.whole_file import open_own, write_whole

#: what Hugging Face's own writer keeps to
LARGEST_SHARD = 5_000_000_000
#: progress is told, and a cut connection resumed, at this grain
_STEP = 64 << 20

Progress = Callable[[int], None]


@dataclass(frozen=True)
class OutputFile:
    name: str
    pieces: tuple[Piece, ...]

    @property
    def header(self) -> bytes:
        return render_header([(p.name, p.dtype, p.shape, p.length) for p in self.pieces])

    @property
    def size(self) -> int:
        return len(self.header) + sum(p.length for p in self.pieces)


def output_files(pieces: Sequence[Piece], largest: int = LARGEST_SHARD) -> list[OutputFile]:
    """The pieces shared out over files of at most `largest` bytes of data, in their order; a larger one has its own."""
    shards: list[list[Piece]] = [[]]
    filled = 0
    for piece in pieces:
        if shards[-1] and filled + piece.length > largest:
            shards.append([])
            filled = 0
        shards[-1].append(piece)
        filled += piece.length
    if len(shards) == 1:
        return [OutputFile(ONE_FILE, tuple(shards[0]))]
    names = [f"model-{at:05d}-of-{len(shards):05d}.safetensors" for at in range(1, len(shards) + 1)]
    return [OutputFile(name, tuple(shard)) for name, shard in zip(names, shards, strict=True)]


def write_files(source: Source, files: Sequence[OutputFile], folder: Path, progress: Progress) -> None:
    """Write every file into `folder`, going on where an earlier try ended: what is there already is taken as it is.

    `progress` is called with each number of bytes that came to be there.
    """
    for file in files:
        _write(source, file, folder / file.name, progress)
    if len(files) > 1:
        places = {piece.name: file.name for file in files for piece in file.pieces}
        total = sum(piece.length for file in files for piece in file.pieces)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_whole(folder / INDEX, json.dumps(index, indent=2) + "\n", private=False)


def _write(source: Source, file: OutputFile, path: Path, progress: Progress) -> None:
    header = file.header
    target = open_own(path, os.O_RDWR | os.O_CREAT, private=False)
    try:
        there = os.fstat(target).st_size
        if there < len(header) or there > file.size or os.pread(target, len(header), 0) != header:
            os.ftruncate(target, 0)
            there = os.write(target, header)
        os.lseek(target, there, os.SEEK_SET)
        progress(there)
        skip = there - len(header)
        for name, ranges in _reads(file.pieces):
            rest, skip = _after(ranges, skip)
            if not rest:
                continue
            with source.open(name) as reader:  # type: ignore[attr-defined]
                for start, length in _in_steps(rest):
                    reader.copy(start, length, target)
                    progress(length)
    finally:
        os.close(target)


def _reads(pieces: Sequence[Piece]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """(source file, ranges) in the order of the pieces, neighbours joined."""
    for name, group in groupby(pieces, key=lambda p: p.source.file):
        yield name, joined(r for piece in group for r in piece.ranges)


def _after(ranges: list[tuple[int, int]], skip: int) -> tuple[list[tuple[int, int]], int]:
    """What is left of ranges after their first `skip` bytes, and how much there is still to skip after them."""
    left: list[tuple[int, int]] = []
    for start, length in ranges:
        gone = min(skip, length)
        skip -= gone
        if length > gone:
            left.append((start + gone, length - gone))
    return left, skip


def _in_steps(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, length in ranges:
        for at in range(0, length, _STEP):
            yield start + at, min(_STEP, length - at)
