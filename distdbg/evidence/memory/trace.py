"""Turn a memory snapshot's plain containers into arrays: allocations of each device, and its rare events.

An allocation has a birth and a death, both the number of an event; -1 is before the trace, its length after it. What
stood before is found from the end: it is what the segments hold, or what is freed, without having been allocated here.
Unknown keys are passed over and absent ones are missed where they are needed: torch adds and drops them.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distdbg.evidence.frames import BACKWARD, FORWARD, OPTIMIZER
from distdbg.evidence.memory.owners import KEY, Owners, read_owners
from distdbg.evidence.memory.stacks import ImplausibleValue, Stacks

#: Stacks tell the phase closer, and of the backward's threads, too; where they tell none, the mark's does.
_MARK = re.compile(r"ddbg (\d{1,12}) ([fbo])")
_MARKED = {"f": FORWARD, "b": BACKWARD, "o": OPTIMIZER}
_TRAINING = frozenset({FORWARD, BACKWARD, OPTIMIZER})
_MOST_DEVICES = 1024
_MOST_RARE = 2_000_000
#: the allocator's grain
GRAIN = 512


class NotASnapshot(Exception):
    """Says what is wrong with it."""


class Rare(NamedTuple):
    """segment_alloc, segment_free, segment_map, segment_unmap, oom or snapshot, event `at` of the trace."""

    at: int
    action: str
    address: int
    size: int
    stream: int
    free: int
    pool: str
    group: int


class SegmentBlock(NamedTuple):
    address: int
    size: int
    requested: int
    state: str


@dataclass(frozen=True)
class Segment:
    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pool: str
    blocks: tuple[SegmentBlock, ...] = ()


@dataclass
class MemoryTrace:
    """One device. `birth`, `death`, `size`, `group`, `address` have an entry an allocation."""

    device: int
    stacks: Stacks
    events: int = 0
    birth: array[int] = field(default_factory=lambda: array("q"))
    death: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    group: array[int] = field(default_factory=lambda: array("q"))
    address: array[int] = field(default_factory=lambda: array("Q"))
    #: by event
    time_us: array[int] = field(default_factory=lambda: array("q"))
    delta: array[int] = field(default_factory=lambda: array("q"))
    #: (event, phase) where the phase changes
    phases: list[tuple[int, str]] = field(default_factory=list)
    rare: list[Rare] = field(default_factory=list)
    #: freed at the second of two events, which came later than the next: another stream still used it
    pending: list[tuple[int, int, int]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    #: (first, last) time of each optimizer step that an annotation names
    steps_us: list[tuple[int, int]] = field(default_factory=list)
    #: (event, step) where a step begins that distdbg's own marks name (worker/memory/snapshots.py)
    marks: list[tuple[int, int]] = field(default_factory=list)
    #: (event, phase) where a phase begins that these marks name; "" where the script set a text of its own instead
    marked: list[tuple[int, str]] = field(default_factory=list)
    #: blocks whose stack is known although the trace lacks their allocation: a ring dropped it
    dropped_blocks: int = 0
    #: frees of what the trace never allocated
    unknown_frees: int = 0
    start: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    #: None where the file has no names
    owners: Owners | None = None

    def named(self, event: int, metadata: object) -> object:
        """The metadata of an allocation: a module that the script named, or our mark, which is kept apart."""
        found = _MARK.fullmatch(metadata) if isinstance(metadata, str) else None
        phase = _MARKED[found[2]] if found else ""
        if not self.marked or self.marked[-1][1] != phase:
            self.marked.append((event, phase))
        if found is None:
            return metadata
        step = int(found[1])
        if not self.marks or self.marks[-1][1] < step:
            self.marks.append((event, step))
        return ""

    def marked_phase(self, event: int) -> str:
        """The phase that a mark names for this event; "" where none does."""
        place = bisect_right(self.marked, event, key=lambda mark: mark[0])
        return self.marked[place - 1][1] if place else ""


def read_snapshot(snapshot: object) -> list[MemoryTrace]:
    """A trace for each device that did anything. Takes the snapshot apart while it reads. Raises NotASnapshot."""
    if isinstance(snapshot, list) and snapshot:  # torch.cuda.memory_snapshot(): the segments alone
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise NotASnapshot("it holds no memory snapshot: there are no segments in it")
    traces = snapshot.pop("device_traces", None) or []
    if not isinstance(traces, list) or len(traces) > _MOST_DEVICES:
        raise NotASnapshot("its device_traces are no list of devices")
    stacks = Stacks()
    found: dict[int, MemoryTrace] = {}
    try:
        for device, events in enumerate(traces):
            if events:
                found[device] = _read_events(MemoryTrace(device, stacks), events)
        _read_segments(found, stacks, snapshot["segments"])
        _read_annotations(found, snapshot.get("external_annotations") or ())
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise NotASnapshot(f"it is no memory snapshot as torch writes them: {_said(error)}") from None
    settings, owners = _settings(snapshot.get("allocator_settings")), read_owners(snapshot.get(KEY))
    stacks.settle()
    for trace in found.values():
        trace.settings, trace.owners = settings, owners
        if stacks.groups[stacks.none].phase:
            trace.phases = _phases(trace)
        trace.start = sum(size for size, birth in zip(trace.size, trace.birth, strict=True) if birth < 0)
    return [trace for _, trace in sorted(found.items())]


def _read_events(trace: MemoryTrace, events: list[Any]) -> MemoryTrace:  # noqa: PLR0915 -- a call an event would double its time
    trace.events = len(events)
    number, groups, before = trace.stacks.number, trace.stacks.groups, trace.stacks.before
    birth, death, sizes, group = trace.birth, trace.death, trace.size, trace.group
    address, time_us, delta = trace.address, trace.time_us, trace.delta
    live: dict[int, int] = {}
    asked: dict[int, int] = {}
    phase = ""
    last_beside: object = ""
    module: object = ""
    end = trace.events
    completes = any(event["action"] == "free_completed" for event in events)
    ends = "free_completed" if completes else "free_requested"
    events.reverse()  # taken from the end, so that what was read is given back as we go
    for index in range(end):
        event = events.pop()
        action, size = event["action"], event["size"]
        time_us.append(event.get("time_us", 0))
        change = 0
        if action == "alloc":
            where = event["addr"]
            beside = event.get("user_metadata", "")
            if beside != last_beside:
                last_beside, module = beside, trace.named(index, beside)
            which = number(event.get("frames") or (), module)
            live[where] = len(birth)
            birth.append(index)
            death.append(end)
            sizes.append(size)
            group.append(which)
            address.append(where)
            change = size
            now = groups[which].phase
            if now != phase and now in _TRAINING:
                phase = now
                trace.phases.append((index, now))
        elif action == ends:
            where = event["addr"]
            known = live.pop(where, None)
            if known is None:
                trace.unknown_frees += 1
                birth.append(-1)
                death.append(index)
                sizes.append(size)
                group.append(before)
                address.append(where)
                change = -size
            else:
                death[known] = index
                change = -sizes[known]
            since = asked.pop(where, index)
            if index - since > 1:
                trace.pending.append((since, index, size))
        elif action == "free_requested":
            asked[event["addr"]] = index
        elif action != "free_completed":
            trace.rare.append(_rare(index, event, number(event.get("frames") or ())))
            if len(trace.rare) > _MOST_RARE:
                raise NotASnapshot("it has more events of segments than any run makes")
        delta.append(change)
    if len(sizes) and min(sizes) < 0:
        raise NotASnapshot("an event has a size below zero")
    trace.pending += [(since, end, sizes[live[where]]) for where, since in asked.items() if where in live and completes]
    return trace


def _phases(trace: MemoryTrace) -> list[tuple[int, str]]:
    """Again, once it is known what the absence of a stack means."""
    found: list[tuple[int, str]] = []
    phase = ""
    for birth, group in zip(trace.birth, trace.group, strict=True):
        now = trace.stacks.groups[group].phase
        if birth >= 0 and now != phase and now in _TRAINING:
            phase = now
            found.append((birth, now))
    return found


def _rare(index: int, event: Mapping[str, Any], group: int) -> Rare:
    return Rare(
        index,
        str(event["action"])[:40],
        _whole(event.get("addr", 0)),
        _whole(event["size"]),
        _whole(event.get("stream", 0)),
        _whole(event.get("device_free", event.get("addr", 0))) if event["action"] == "oom" else 0,
        str(event.get("pool_id", ""))[:60],
        group,
    )


def _read_segments(found: dict[int, MemoryTrace], stacks: Stacks, segments: list[Any]) -> None:
    known = {device: _living(trace) for device, trace in found.items()}
    for entry in segments:
        device = _whole(entry.get("device", 0))
        if device not in found:
            if len(found) >= _MOST_DEVICES:
                raise NotASnapshot("it names more devices than any machine has")
            found[device], known[device] = MemoryTrace(device, stacks), set()
        trace = found[device]
        at = _whole(entry["address"])
        blocks = []
        for raw in entry.get("blocks") or ():
            size = _whole(raw["size"])
            address = _whole(raw.get("address", at))
            at = address + size
            block = SegmentBlock(address, size, _whole(raw.get("requested_size", size)) or size, str(raw["state"])[:24])
            blocks.append(block)
            if block.state.startswith("active") and address not in known[device]:
                _stood_before(trace, block, _frames_of(raw))
        trace.segments.append(
            Segment(
                _whole(entry["address"]),
                _whole(entry["total_size"]),
                _whole(entry.get("stream", 0)),
                entry.get("segment_type") == "small",
                bool(entry.get("is_expandable")),
                str(entry.get("segment_pool_id", ""))[:60],
                tuple(blocks),
            )
        )
    for trace in found.values():
        trace.segments.sort(key=lambda s: s.address)


def _living(trace: MemoryTrace) -> set[int]:
    end = trace.events
    return {a for a, death in zip(trace.address, trace.death, strict=True) if death == end}


def _stood_before(trace: MemoryTrace, block: SegmentBlock, frames: list[Any]) -> None:
    trace.dropped_blocks += bool(frames) and trace.events > 0
    trace.birth.append(-1)
    trace.death.append(trace.events)
    trace.size.append(block.requested)
    trace.group.append(trace.stacks.number(frames) if frames else trace.stacks.before)
    trace.address.append(block.address)


def _frames_of(block: Mapping[str, Any]) -> list[Any]:
    """The frames of a block; in the files of torch 2.0 its stack is in its history."""
    frames = block.get("frames")
    if not frames and isinstance(block.get("history"), list) and block["history"]:
        frames = block["history"][0].get("frames")
    return frames if isinstance(frames, list) else []


def _read_annotations(found: dict[int, MemoryTrace], annotations: object) -> None:
    begun: dict[tuple[int, str], int] = {}
    for note in annotations if isinstance(annotations, list) else ():
        name, device, t = str(note.get("name", "")), _whole(note.get("device", 0)), _whole(note.get("time_us", 0))
        if not name.startswith("Optimizer.step"):
            continue
        if note.get("stage") == "START":
            begun[device, name] = t
        elif device in found:
            found[device].steps_us.append((begun.pop((device, name), t), t))


def _settings(raw: object) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        return {}
    return {str(k)[:60]: str(v)[:200] for k, v in raw.items() if isinstance(v, str | int | float | bool)}


def _whole(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ImplausibleValue(f"{str(value)[:40]!r} where a number of bytes, an address or a time belongs")
    return value


def _said(error: Exception) -> str:
    """The error's message without Python's own words, which say nothing about the file."""
    if isinstance(error, ImplausibleValue):
        return str(error)
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return "a value in it has another type or is out of range"


def living_at(trace: MemoryTrace, index: int) -> Iterator[int]:
    """The allocations that are alive after event `index`."""
    return (n for n, (birth, death) in enumerate(zip(trace.birth, trace.death, strict=True)) if birth <= index < death)
