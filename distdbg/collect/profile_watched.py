"""What NVML said of a rank's GPU while it was profiled, out of the run's metrics: a few lines of a long file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from distdbg.evidence.gpu_window import NEAR_S, watched
from distdbg.evidence.jsonl import number, whole
from distdbg.evidence.profile import RankProfile
from distdbg.rundir import Attempt

_PIECE = 1 << 20
#: A line of a node with eight GPUs has 3 KB.
_LINE = 64 << 10


def with_watched(profile: RankProfile, attempt: Attempt) -> RankProfile:
    """The same profile with it, where its trace says when it was, and a look shows its rank on a GPU."""
    if profile.rank is None or profile.span is None:
        return profile
    begin, end = profile.span
    for lines in (_around(path, begin - NEAR_S, end + NEAR_S) for path in _metrics(attempt, profile.rank)):
        if (found := watched(lines, profile.rank, begin, end)) is not None:
            return replace(profile, watched=found)
    return profile


def _metrics(attempt: Attempt, rank: int) -> list[Path]:
    """Of the node that it ran on, where that is known; else of all."""
    try:
        told = json.loads(attempt.rank(rank).exit.read_text(encoding="utf-8"))
        node = told.get("node_rank")
    except (OSError, ValueError, AttributeError, RecursionError):
        node = None
    nodes = attempt.nodes()
    return [files.metrics for files in [n for n in nodes if n.node_rank == node] or nodes]


def _around(path: Path, begin: float, end: float) -> list[dict[str, Any]]:
    """Lines whose `t` is within; they stand in the order of time, so that the place of the first is found by halves."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        low, high = 0, os.fstat(descriptor).st_size
        while high - low > _LINE:
            middle = (low + high) // 2
            t = _time_at(descriptor, middle)
            low, high = (middle, high) if t is not None and t < begin else (low, middle)
        text = os.pread(descriptor, _PIECE, low).decode("utf-8", "replace")
    except OSError:
        return []
    finally:
        os.close(descriptor)
    found = [line for line in map(whole, text.split("\n")) if line is not None]
    return [line for line in found if (t := number(line, "t")) is not None and begin <= t <= end]


def _time_at(descriptor: int, offset: int) -> float | None:
    """Of the first whole line from there on; None where there is none."""
    for text in os.pread(descriptor, _LINE, offset).decode("utf-8", "replace").split("\n")[1:]:
        if (line := whole(text)) is not None and (t := number(line, "t")) is not None:
            return t
    return None
