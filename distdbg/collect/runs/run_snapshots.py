"""Find the memory snapshots of a run's ranks: those for its evidence, the newest of each host, two to compare."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_bytes
from distdbg.collect.files.snapshot_files import ENDINGS, SnapshotUnreadable, read_snapshot_file
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.evidence import jsonl
from distdbg.evidence.memory.answer import MemoryAnswer
from distdbg.evidence.memory.host_snapshot import HostSnapshot, host_snapshot
from distdbg.evidence.run import RunEvidence
from distdbg.model import Unknown
from distdbg.rundir import Attempt, RunDir

#: Each takes some 0.3 s: a verdict is not kept waiting for a thousand of them.
_MOST_FILES = 8
_HOST_ENDING = ".host.json.gz"
_MOST_PACKED, _MOST_UNPACKED = 4 << 20, 16 << 20
_STEP = re.compile(r"-step(\d{6,})-(\d{3,})\.")


def with_snapshots(evidence: RunEvidence, run: RunDir) -> RunEvidence:
    """The same evidence with what the snapshots of its attempt tell. Nothing is raised for what cannot be read."""
    # Failures first, then by rank. A name begins with what it was taken for, and ends with its number.
    files = _one_of_each(run.attempt(evidence.attempt), ENDINGS, lambda p: (p.name.startswith("oom-"), _number(p)))
    files.sort(key=lambda path: not path.name.startswith("oom-"))
    answers: list[MemoryAnswer] = []
    unknown = []
    for path in files[:_MOST_FILES]:
        name = run.relative(path)
        try:
            answers += read_snapshot_file(path, name)
        except SnapshotUnreadable as error:
            unknown.append(Unknown(name, str(error)))
    if len(files) > _MOST_FILES:
        because = "`distdbg memory analyze` of the run reads all of them"
        unknown.append(Unknown(f"{len(files) - _MOST_FILES} of {len(files)} memory snapshots", because))
    if not files:
        return evidence
    return replace(evidence, snapshots=tuple(answers), unknown=(*evidence.unknown, *unknown))


def _number(path: Path) -> str:
    return path.name.partition(".")[0][-3:]


def _one_of_each(attempt: Attempt, endings: tuple[str, ...], key: Callable[[Path], Any]) -> list[Path]:
    """The last snapshot by `key` of each rank that has any."""
    found = ([p for p in of_rank.memory.glob("*") if p.name.endswith(endings)] for of_rank in attempt.ranks().values())
    return [max(paths, key=key) for paths in found if paths]


def host_snapshots(run: RunDir, attempt: int) -> tuple[list[HostSnapshot], list[Unknown]]:
    """The host snapshots in the order of ranks, and those that cannot be used."""
    found: list[HostSnapshot] = []
    unknown: list[Unknown] = []
    for path in _one_of_each(run.attempt(attempt), (_HOST_ENDING,), _number):
        name = run.relative(path)
        try:
            found.append(_read_host_snapshot(path, name))
        except ValueError as error:
            unknown.append(Unknown(name, str(error)))
    return found, unknown


def _read_host_snapshot(path: Path, name: str) -> HostSnapshot:
    """Raises ValueError, which says why."""
    packed, why = read_bytes(path, _MOST_PACKED)
    if packed is None:
        raise ValueError(why or "it is missing")
    unpacker = zlib.decompressobj(31)
    try:
        text = unpacker.decompress(packed, _MOST_UNPACKED)
    except zlib.error:
        raise ValueError("it is no whole gzip file") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MOST_UNPACKED >> 20} MiB")
    value = jsonl.whole(text.decode("utf-8", "replace"))
    found = host_snapshot(value, name) if value is not None else None
    if found is None:
        raise ValueError("it is no host snapshot (cut short?)")
    return found


def two_snapshots(run: Path, ranks: Sequence[int], steps: Sequence[int]) -> tuple[Path, Path]:
    """Two snapshots: of two ranks, of two steps, or of both; a single rank or step counts for both sides.

    Without steps: the newest step that both ranks have, else the newest of each. Without ranks: the first rank that has
    both steps. Raises UsageError, NothingToAnalyse.
    """
    if len(ranks) > 2 or len(steps) > 2 or len(ranks) + len(steps) < 2 or (len(ranks) == len(steps) == 1):
        raise UsageError(
            f"two snapshots are compared, and --ranks and --steps name {max(len(ranks), 1) * max(len(steps), 1)}",
            "Name two ranks (--ranks 0,3), or two steps (--steps 10,200), or both.",
        )
    found = _by_rank(run)
    if not found:
        raise NothingToAnalyse(
            f"no memory snapshot is in {str(run)!r}", "`distdbg memory snapshot RUN` takes them while it runs."
        )
    if not ranks:
        ranks = [next((rank for rank, of in found.items() if all(step in of for step in steps)), min(found))]
    for rank in ranks:
        if rank not in found:
            raise UsageError(f"rank {rank} has no snapshot", f"These have: {', '.join(map(str, list(found)[:20]))}.")
    first, last = found[ranks[0]], found[ranks[-1]]
    if not steps:
        both = sorted(set(first) & set(last))
        steps = [both[-1]] if both else [max(first), max(last)]
    for of, rank, step in ((first, ranks[0], steps[0]), (last, ranks[-1], steps[-1])):
        if step not in of:
            have = ", ".join(map(str, list(of)[:20]))
            raise UsageError(f"rank {rank} has no snapshot of step {step}", f"It has those of step {have}.")
    return first[steps[0]], last[steps[-1]]


def _by_rank(run: Path) -> dict[int, dict[int, Path]]:
    """rank -> step -> its last snapshot there, of the newest attempt that has any."""
    for attempt in reversed(RunDir(run).attempts()):
        found: dict[int, dict[int, Path]] = {}
        for rank, files in sorted(attempt.ranks().items()):
            own = [(int(m[1]), int(m[2]), path) for path in files.memory.glob("*")
                    if path.name.endswith(ENDINGS) and (m := _STEP.search(path.name))]  # fmt: skip
            if own:
                found[rank] = {step: path for step, _, path in sorted(own)}
        if found:
            return found
    return {}
