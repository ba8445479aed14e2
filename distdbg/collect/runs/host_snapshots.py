"""Read the newest host snapshot of each rank of a run, unpacked within bounds."""

from __future__ import annotations

import zlib
from pathlib import Path

from distdbg.collect.files.bounded_read import read_bytes
from distdbg.evidence import jsonl
from distdbg.evidence.memory.host_snapshot import HostSnapshot, host_snapshot
from distdbg.model import Unknown
from distdbg.rundir import Attempt, RunDir

_ENDING = ".host.json.gz"
_MOST_PACKED, _MOST = 4 << 20, 16 << 20


def host_snapshots(run: RunDir, attempt: int) -> tuple[list[HostSnapshot], list[Unknown]]:
    """In the order of ranks, and what cannot be used."""
    found: list[HostSnapshot] = []
    unknown: list[Unknown] = []
    for path in _newest(run.attempt(attempt)):
        name = run.relative(path)
        try:
            found.append(_read(path, name))
        except ValueError as error:
            unknown.append(Unknown(name, str(error)))
    return found, unknown


def _newest(attempt: Attempt) -> list[Path]:
    chosen = []
    for files in attempt.ranks().values():
        found = list(files.memory.glob(f"*{_ENDING}"))
        if found:
            chosen.append(max(found, key=lambda path: path.name.partition(".")[0][-3:]))
    return chosen


def _read(path: Path, name: str) -> HostSnapshot:
    """Raises ValueError, which says why."""
    packed, why = read_bytes(path, _MOST_PACKED)
    if packed is None:
        raise ValueError(why or "it is missing")
    unpacker = zlib.decompressobj(31)
    try:
        text = unpacker.decompress(packed, _MOST)
    except zlib.error:
        raise ValueError("it is no whole gzip file") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MOST >> 20} MiB")
    value = jsonl.whole(text.decode("utf-8", "replace"))
    found = host_snapshot(value, name) if value is not None else None
    if found is None:
        raise ValueError("it is no host snapshot (cut short?)")
    return found
