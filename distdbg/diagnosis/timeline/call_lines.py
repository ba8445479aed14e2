"""What began an operation of the flight recorder, by what its rank wrote down: the line, the module, the phase."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.evidence.dump import RankDump
from distdbg.evidence.frames import Origin, origin_of
from distdbg.evidence.ops import is_recorded_as
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
    """The line of that call, None where it called another operation, or torch did. `operation` is Python's name."""
    call = call_of(had, created_ns)
    if (
        call is None
        or not call.file
        or origin_of(call.file) is Origin.TORCH
        or not is_recorded_as(call.operation, operation)
    ):
        return None
    return Frame(call.function, call.file, call.line)


@dataclass(frozen=True)
class ModelPlace:
    """Where in the model an operation belongs. `phase` is forward or backward; both are empty where it is not known."""

    module: str = ""
    phase: str = ""

    def __str__(self) -> str:
        of = f" of module {self.module}" if self.module else ""
        return f"{of} in {self.phase}" if self.phase else of


def place_of(had: RankDump, created_ns: int, operation: str) -> ModelPlace:
    """By the call itself, which FSDP2 made for a unit; else, of what C++ began by itself, such as DDP's reductions, by
    when the newest forward, backward and optimizer step began. A call of the user's has its line, and no phase."""
    call = call_of(had, created_ns)
    if call is not None and is_recorded_as(call.operation, operation):
        return ModelPlace(call.module, call.phase)
    page, created = had.last.page, created_ns / 1e9
    if page is None or had.overrun:
        return ModelPlace()
    times = (page.forward_t, "forward"), (page.backward_t, "backward"), (page.optimizer_t, "optimizer")
    began = [(t, phase) for t, phase in times if t is not None]
    _, phase = max((one for one in began if one[0] <= created), default=(0.0, ""))
    return ModelPlace(phase=phase) if phase in ("forward", "backward") else ModelPlace()


def _before(had: RankDump, created: int) -> Iterator[int]:
    """When the last operation of each group was created before this one."""
    for log in had.recorder.groups.values() if had.recorder else ():
        at = bisect_left(log.created, created)
        if at:
            yield log.created[at - 1]
