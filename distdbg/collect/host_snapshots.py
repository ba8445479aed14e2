"""A run's host snapshots, unpacked within bounds: of each rank the newest."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from distdbg.collect.bounded_read import read_bytes
from distdbg.evidence.host_snapshot import HostSnapshot, host_snapshot
from distdbg.rundir import Attempt, RunDir

_ENDING = ".host.json.gz"
_MOST_PACKED, _MOST = 4 << 20, 16 << 20


def host_snapshots(run: RunDir, attempt: int) -> list[HostSnapshot]:
    """In the order of ranks. What is broken, foreign or too long is left out."""
    found = (_read(path, run.relative(path)) for path in _newest(run.attempt(attempt)))
    return [one for one in found if one is not None]


def _newest(attempt: Attempt) -> list[Path]:
    chosen = []
    for files in attempt.ranks().values():
        found = list(files.memory.glob(f"*{_ENDING}"))
        if found:
            chosen.append(max(found, key=lambda path: path.name.partition(".")[0][-3:]))
    return chosen


def _read(path: Path, name: str) -> HostSnapshot | None:
    packed, _ = read_bytes(path, _MOST_PACKED)
    unpacker = zlib.decompressobj(31)
    try:
        value = json.loads(unpacker.decompress(packed or b"", _MOST))
    except (zlib.error, ValueError, RecursionError):
        return None
    return host_snapshot(value, name) if isinstance(value, dict) else None
