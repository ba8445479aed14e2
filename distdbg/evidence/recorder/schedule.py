"""Read the schedule of a rank from torch's flight recorder: what it enqueued in each group, with size and user's line.

`reading.py` keeps of a recorder what a hang needs; here every operation counts, and its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.frames import phase_of
from distdbg.evidence.ops import find
from distdbg.evidence.recorder.reading import users_lines
from distdbg.evidence.stacks.threads import Frame

#: Bytes of an element, by the recorder's name of its type; those that are not listed have 4.
_SIZES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
_OTHER_SIZE = 4


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One operation of one rank. `bytes` is the larger of all its inputs and all its outputs; `at` is ns since the
    epoch. `line` is the user's innermost line, None where no frame is the user's. `agrees` are the bytes that must be
    the same on all ranks of the group, 0 where they need not. `number` counts the collectives of the group, -1 for what
    not every rank of it enqueues: a send or receive."""

    group: str
    description: str
    operation: str
    bytes: int
    agrees: int
    number: int
    at: int
    line: Frame | None
    phase: str = ""

    @property
    def what(self) -> tuple[str, int]:
        """What must be the same on all ranks of the group."""
        return self.operation, self.agrees


def read_schedule(dump: object) -> tuple[Enqueued, ...]:
    """The operations in the order in which they were enqueued; entries of another form are left out."""
    entries = dump.get("entries") if isinstance(dump, Mapping) else None
    found = []
    for entry in entries if isinstance(entries, Sequence) else ():
        try:
            found.append(_enqueued(entry))
        except (TypeError, ValueError, KeyError, AttributeError):  # noqa: PERF203 -- one bad entry
            continue
    return tuple(found)


def _enqueued(entry: Mapping[str, Any]) -> Enqueued:
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
        int(entry["time_created_ns"]), lines[0] if lines else None, _phase(frames),
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
