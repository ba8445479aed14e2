"""Read the schedule of a rank from torch's flight recorder: what it enqueued in each group, with size and user's line.

`reading.py` keeps of a recorder what a hang needs; here every operation counts, and its size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distdbg.evidence.frames import BACKWARD, phase_of
from distdbg.evidence.ops import find
from distdbg.evidence.recorder.reading import users_lines
from distdbg.evidence.stacks.threads import Frame

#: Bytes of an element, by the recorder's name of its type; those that are not listed have 4.
_SIZES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
_OTHER_SIZE = 4
#: Spans that are looked at for an operation: they are nested a few deep.
_MOST_INSIDE = 4


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One operation of one rank. `bytes` is the larger of all its inputs and all its outputs; `at` is ns since the
    epoch. `line` is the user's innermost line, None where no frame is the user's. `agrees` are the bytes that must be
    the same on all ranks of the group, 0 where they need not. `number` counts the collectives of the group, -1 for what
    not every rank of it enqueues: a send or receive. `module` is the path of the one whose parameters it is about."""

    group: str
    description: str
    operation: str
    bytes: int
    agrees: int
    number: int
    at: int
    line: Frame | None
    phase: str = ""
    module: str = ""

    @property
    def what(self) -> tuple[str, int]:
        """What must be the same on all ranks of the group."""
        return self.operation, self.agrees


def read_schedule(dump: object) -> tuple[Enqueued, ...]:
    """The operations in the order in which they were enqueued; entries of another form are left out.

    One without a Python frame, where others have frames, is of autograd's thread: DDP reduces there.
    """
    entries = dump.get("entries") if isinstance(dump, Mapping) else None
    entries = entries if isinstance(entries, Sequence) else ()
    framed = any(isinstance(entry, Mapping) and entry.get("frames") for entry in entries)
    found = []
    for entry in entries:
        try:
            found.append(_enqueued(entry, framed=framed))
        except (TypeError, ValueError, KeyError, AttributeError):  # noqa: PERF203 -- one bad entry
            continue
    return tuple(found)


def with_modules(operations: Sequence[Enqueued], spans: Iterable[object]) -> tuple[Enqueued, ...]:
    """`spans` are [begin, end, path] in ns since the epoch, in the order of their ends; the innermost one counts."""
    known = sorted(
        (begin, end, path)
        for span in spans
        if isinstance(span, Sequence) and len(span) == 3
        for begin, end, path in [span]
        if isinstance(begin, int) and isinstance(end, int) and isinstance(path, str)
    )
    begins = [begin for begin, _, _ in known]
    found = []
    for one in operations:
        place = bisect_right(begins, one.at)
        around = (path for _, end, path in reversed(known[max(0, place - _MOST_INSIDE) : place]) if one.at <= end)
        found.append(replace(one, module=next(around, "")))
    return tuple(found)


def _enqueued(entry: Mapping[str, Any], *, framed: bool) -> Enqueued:
    name, description = entry["process_group"]
    spelling = str(entry["profiling_name"]).partition(":")[2].partition(" ")[0]
    known = find(spelling)
    sizes = [
        sum(_bytes(shape, kind) for shape, kind in zip(entry[f"{way}_sizes"], entry[f"{way}_dtypes"], strict=False))
        for way in ("input", "output")
    ]
    agrees = sizes[0] if known is not None and known.equal_inputs else 0
    frames = entry.get("frames") or ()
    lines = users_lines(frames)
    closes_batch = not max(sizes)  # the entry that ends a coalesced call has no tensors
    of_all = known is not None and not known.is_transfer and not entry["is_p2p"] and not closes_batch
    number = int(entry["collective_seq_id"]) if of_all else -1
    return Enqueued(
        str(name), str(description), known.name if known is not None else spelling, max(sizes), agrees, number,
        int(entry["time_created_ns"]), lines[0] if lines else None,
        BACKWARD if framed and not frames else _phase(frames),
    )  # fmt: skip


def _bytes(shape: Iterable[int], kind: str) -> int:
    size = _SIZES.get(kind, _OTHER_SIZE)
    for length in shape:
        size *= int(length)
    return size


def _phase(frames: Iterable[Mapping[str, Any]]) -> str:
    """Which part of a step has enqueued it, by the innermost frame that belongs to one; empty where none does."""
    found = (phase_of(str(frame.get("filename", "")), str(frame.get("name", ""))) for frame in frames)
    return next(filter(None, found), "")
