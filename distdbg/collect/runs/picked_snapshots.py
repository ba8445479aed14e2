"""Choose two memory snapshots of one run by ranks and steps, for `distdbg memory diff RUN`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from distdbg.collect.files.snapshot_files import ENDINGS
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.rundir import RunDir

_STEP = re.compile(r"-step(\d{6,})-(\d{3,})\.")


def two_snapshots(run: Path, ranks: Sequence[int], steps: Sequence[int]) -> tuple[Path, Path]:
    """Of two ranks, of two steps, or of both; one rank or step stands for both sides.

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
    first, last = _of(found, ranks[0]), _of(found, ranks[-1])
    if not steps:
        both = sorted(set(first) & set(last))
        steps = [both[-1]] if both else [max(first), max(last)]
    return _at(first, ranks[0], steps[0]), _at(last, ranks[-1], steps[-1])


def _by_rank(run: Path) -> dict[int, dict[int, Path]]:
    """rank -> step -> its last snapshot there, of the newest attempt that has any."""
    for attempt in reversed(RunDir(run).attempts()):
        found: dict[int, dict[int, Path]] = {}
        for rank, files in sorted(attempt.ranks().items()):
            told = [(int(m[1]), int(m[2]), path) for path in files.memory.glob("*")
                    if path.name.endswith(ENDINGS) and (m := _STEP.search(path.name))]  # fmt: skip
            if told:
                found[rank] = {step: path for step, _, path in sorted(told)}
        if found:
            return found
    return {}


def _of(found: dict[int, dict[int, Path]], rank: int) -> dict[int, Path]:
    if rank in found:
        return found[rank]
    raise UsageError(f"rank {rank} has no snapshot", f"These have: {', '.join(map(str, list(found)[:20]))}.")


def _at(of: dict[int, Path], rank: int, step: int) -> Path:
    if step in of:
        return of[step]
    have = ", ".join(map(str, list(of)[:20]))
    raise UsageError(f"rank {rank} has no snapshot of step {step}", f"It has those of step {have}.")
