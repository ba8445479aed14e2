"""Write a small checkpoint: safetensors files by byte ranges, resumable, and `shrink.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from distdbg.model import grouped
from distdbg.shrink.checkpoint.slicing import Piece, joined
from distdbg.shrink.checkpoint.source import CheckpointSource
from distdbg.shrink.checkpoint.tensors import INDEX, ONE_FILE, render_header
from distdbg.whole_file import open_own, write_whole

Progress = Callable[[int], None]
RECORD, SCHEMA = "shrink.json", "distdbg.shrink/1"


@dataclass(frozen=True)
class ShrinkProgress:
    """What a person sees while a model is made small.

    `written` is called with (bytes done, bytes in all), `stage` with what is done as long as its block lasts.
    """

    written: Callable[[int, int], None] = lambda _done, _total: None
    stage: Callable[[str], AbstractContextManager[Any]] = lambda _words: nullcontext()

    def counter(self, total: int) -> Progress:
        """Tells `written` of each number of bytes that it is called with; `total` in all."""
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            self.written(done, total)

        return count


SILENT = ShrinkProgress()


#: what Hugging Face's own writer keeps to
LARGEST_SHARD = 5_000_000_000
#: progress is reported, and a cut connection resumed, in parts of this size
_STEP = 64 << 20


@dataclass(frozen=True)
class WeightsFile:
    name: str
    pieces: tuple[Piece, ...]

    @property
    def header(self) -> bytes:
        return render_header([(p.name, p.dtype, p.shape, p.length) for p in self.pieces])

    @property
    def size(self) -> int:
        return len(self.header) + sum(p.length for p in self.pieces)


def output_files(pieces: Sequence[Piece], largest: int = LARGEST_SHARD) -> list[WeightsFile]:
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
        return [WeightsFile(ONE_FILE, tuple(shards[0]))]
    names = [f"model-{at:05d}-of-{len(shards):05d}.safetensors" for at in range(1, len(shards) + 1)]
    return [WeightsFile(name, tuple(shard)) for name, shard in zip(names, shards, strict=True)]


def write_files(source: CheckpointSource, files: Sequence[WeightsFile], folder: Path, progress: Progress) -> None:
    """Write every file into `folder`, going on where an earlier try ended: what is there already is taken as it is.

    `progress` is called with each number of bytes that came to be there.
    """
    for file in files:
        _write(source, file, folder / file.name, progress)
    if len(files) > 1:
        places = {piece.name: file.name for file in files for piece in file.pieces}
        total = sum(piece.length for file in files for piece in file.pieces)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_public_json(folder / INDEX, index)


def write_public_json(path: Path, value: object) -> None:
    """Write JSON as Hugging Face writes a config, readable by everybody who may read the folder."""
    write_whole(path, json.dumps(value, indent=2) + "\n", private=False)


def _write(source: CheckpointSource, file: WeightsFile, path: Path, progress: Progress) -> None:
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
        for name, group in groupby(file.pieces, key=lambda piece: piece.source.file):
            # neighbours are read at once
            rest, skip = _after(joined(r for piece in group for r in piece.ranges), skip)
            if not rest:
                continue
            with source.open(name) as reader:
                for start, length in rest:
                    for at in range(0, length, _STEP):
                        reader.copy(start + at, min(_STEP, length - at), target)
                        progress(min(_STEP, length - at))
    finally:
        os.close(target)


def _after(ranges: list[tuple[int, int]], skip: int) -> tuple[list[tuple[int, int]], int]:
    """What is left of ranges after their first `skip` bytes, and how much there is still to skip after them."""
    left: list[tuple[int, int]] = []
    for start, length in ranges:
        gone = min(skip, length)
        skip -= gone
        if length > gone:
            left.append((start + gone, length - gone))
    return left, skip


def _renamed(origins: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Name in the source -> new name, or all of them where its layer is kept several times."""
    names = grouped((old, new) for new, old in origins.items())
    return {old: new[0] if len(new) == 1 else new for old, new in names.items() if new != [old]}


def record(
    probe: dict[str, Any], taken: Sequence[Piece], dropped: Sequence[str], folder: Path, *, read: int, random: bool
) -> dict[str, Any]:
    """What shrink.json says: what was kept, renumbered, sliced, dropped, warned of and verified.

    `bytes_read` counts what came from the source; `bytes_written` everything in `folder`.
    """
    written = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
    pickled = probe.get("pickled", {})
    cut = [piece for piece in taken if piece.shape != piece.source.shape]
    sliced = {piece.name: {"from": list(piece.source.shape), "to": list(piece.shape)} for piece in cut}
    return {
        "schema": SCHEMA,
        "model_type": probe["model_type"],
        "weights": "random" if random else "sliced",
        "stacks": probe["stacks"],
        "narrowed": [{k: one[k] for k in ("axis", "from", "to", "edits")} for one in probe["narrowed"]],
        "renamed": _renamed({p.name: p.source.name for p in taken} | pickled.get("origins", {})),
        "sliced": sliced | pickled.get("sliced", {}),
        "dropped": [*dropped, *pickled.get("dropped", ())],
        "warnings": list(probe["warnings"]),
        "verified": {},
        "bytes_read": read,
        "bytes_written": written,
    }


# -- what is beside a checkpoint's weights and is small: tokenizer, processor, templates, code ------------------------

#: what holds weights, in any form, is not copied along
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".tflite",
           ".ot", ".distcp")  # fmt: skip
_LARGEST_OTHER_FILE = 200_000_000


def copy_others(source: CheckpointSource, folder: Path, leave: tuple[str, ...]) -> None:
    """Every small file that holds no weights, but those whose names are in `leave`."""
    for name in others(source, leave):
        with source.open(name) as reader:
            if reader.size > _LARGEST_OTHER_FILE:
                continue
            content = reader.read(0, reader.size)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, private=False)


def others(source: CheckpointSource, leave: tuple[str, ...]) -> list[str]:
    """The names of files that hold no weights."""
    return [n for n in source.files() if n not in leave and not n.endswith((*WEIGHTS, ".index.json"))]
