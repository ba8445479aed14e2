"""The user's call that began an operation of the flight recorder, by the calls that the rank wrote down."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from distdbg.evidence.dump import RankDump
from distdbg.evidence.ops import find
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.stacks.threads import Frame


def call_of(had: RankDump, created_ns: int) -> Call | None:
    """The newest call before the operation was created, unless another operation came in between.

    Operations that C++ begins by itself, such as DDP's reductions, have none.
    """
    call = next((c for c in reversed(had.calls) if c.t <= created_ns), None)
    if call is None or any(call.t <= other < created_ns for other in _before(had, created_ns)):
        return None
    return call


def line_of(had: RankDump, created_ns: int, operation: str) -> Frame | None:
    """The line of that call, None where it called another operation. `operation` is Python's name."""
    call = call_of(had, created_ns)
    if call is None or not call.file or find(call.operation) is not find(operation):
        return None
    return Frame(call.function, call.file, call.line)


def _before(had: RankDump, created: int) -> Iterator[int]:
    """When the last operation of each group was created before this one."""
    for log in had.recorder.groups.values() if had.recorder else ():
        at = bisect_left(log.created, created)
        if at:
            yield log.created[at - 1]
