"""Read what NVML reported about a rank's GPU while it was profiled, from the run's metrics."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_whole
from distdbg.evidence.jsonl import number, whole
from distdbg.evidence.trace.gpu_window import NEAR_S, watched
from distdbg.evidence.trace.profile import RankProfile
from distdbg.rundir import Attempt, open_regular

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
    node = (whole(read_whole(attempt.rank(rank).exit, _PIECE)[0] or "") or {}).get("node_rank")
    nodes = attempt.nodes()
    return [files.metrics for files in [n for n in nodes if n.node_rank == node] or nodes]


def _around(path: Path, begin: float, end: float) -> list[dict[str, Any]]:
    """Lines whose `t` is within; they stand in the order of time, so that the place of the first is found by halves."""
    try:
        with open_regular(path, buffering=0) as file:
            descriptor = file.fileno()
            low, high = 0, os.fstat(descriptor).st_size
            while high - low > _LINE:
                middle = (low + high) // 2
                t = _time_at(descriptor, middle)
                low, high = (middle, high) if t is not None and t < begin else (low, middle)
            text = os.pread(descriptor, _PIECE, low).decode("utf-8", "replace")
    except OSError:
        return []  # the GPU's figures only add to a profile; a run's own evidence says that they are missing
    found = [line for line in map(whole, text.split("\n")) if line is not None]
    return [line for line in found if (t := number(line, "t")) is not None and begin <= t <= end]


def _time_at(descriptor: int, offset: int) -> float | None:
    """Of the first whole line from there on; None where there is none."""
    for text in os.pread(descriptor, _LINE, offset).decode("utf-8", "replace").split("\n")[1:]:
        if (line := whole(text)) is not None and (t := number(line, "t")) is not None:
            return t
    return None
