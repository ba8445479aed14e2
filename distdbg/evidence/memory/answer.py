"""The analysis of one device's memory snapshot: small, whatever the snapshot's size was, and plain JSON.

It crosses from the bounded process that reads a snapshot to the one that asked, and it is what diffs compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from distdbg.evidence.memory import thresholds

_T = TypeVar("_T")
PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS = "parameters", "gradients", "optimizer state", "activations"
#: copies of parameters and buffers that DataParallel makes for a forward, and copies of a batch on the device
REPLICAS, INPUTS = "replicas", "inputs"
BUFFERS, WORKSPACE, BEFORE_RECORDING, UNATTRIBUTED = "buffers", "workspace", "before recording", "unattributed"


@dataclass(frozen=True)
class StackInfo:
    """One stack that is named below, by its place in `stacks`."""

    label: str
    #: the user's lines, innermost first
    callers: tuple[str, ...]
    #: every Python frame, `file:line function`, innermost first
    frames: tuple[str, ...]
    phase: str
    #: file and line to look at; "" and 0 where there is none
    file: str = ""
    line: int = 0
    #: the library's own innermost line, where the user only called it
    inner: str = ""


@dataclass(frozen=True)
class Holder:
    """What a stack holds at one moment; `without` is the trace's peak if it held nothing."""

    stack: int
    bytes: int
    count: int
    kinds: Mapping[str, int]
    without: int = 0
    #: of the tensors in it whose names are known, the largest, and how many more
    names: str = ""


@dataclass(frozen=True)
class Moment:
    """All live memory after one event; event -1 is the state before the first one."""

    event: int
    #: seconds since the trace's first event; None without times
    t: float | None
    active: int
    reserved: int
    holders: tuple[Holder, ...]
    kinds: Mapping[str, int]
    #: what the stacks that are not listed hold
    rest: int = 0
    #: by the phase in which it was allocated
    phases: Mapping[str, int] = field(default_factory=dict)
    #: by module of the model, as far as it is known, and in it by kind; empty where the file has no names
    modules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def when(self) -> str:
        return f"event {self.event:,}" if self.event >= 0 else "before the first event"


@dataclass(frozen=True)
class Leak:
    """A stack whose bytes grow from step to step. `points` are its bytes at each boundary."""

    stack: int
    slope: float
    grown: int
    count: int
    points: tuple[int, ...]


@dataclass(frozen=True)
class SegmentsOf:
    """Bytes and number of the segments that belong to a stack (evidence/memory/analysis.py)."""

    stack: int
    bytes: int
    count: int


@dataclass(frozen=True)
class SegmentSpans:
    """One segment at the OOM: spans of (offset, size, state), state `used`, `pending` or `free`."""

    address: int
    size: int
    stream: int
    small: bool
    usable: bool
    spans: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True)
class OomVerdict:
    """The failed request and what there was. `verdict` is short, fragmented or limited."""

    event: int
    request: int
    #: what would have had to be asked of the device for it
    needed: int
    device_free: int
    active: int
    reserved: int
    #: free inside segments: all, what this request could have used, and the largest piece of that
    free_inside: int
    free_usable: int
    largest_hole: int
    #: freed, and still waited for by another stream
    pending: int
    verdict: str
    #: bytes short where it is short, if all holes were one, in steps of a segment; bytes spare if they were one where
    #: it is fragmented; where it is limited the most that was there in one piece
    by: int
    expandable: bool
    stack: int
    how_many: int
    #: steps that ended after it: it was caught, and tried again with less
    steps_after: int = 0
    segments: tuple[SegmentSpans, ...] = ()
    more_segments: int = 0

    @property
    def enough(self) -> int:
        """Bytes that the device lacked for a new segment: given back to it, they would have been enough."""
        return self.needed - self.device_free

    @property
    def missing(self) -> int:
        """Bytes that would have been enough if these holders had freed them; 0 where memory was not short."""
        return {"short": self.by, "fragmented": self.request - self.largest_hole}.get(self.verdict, 0)


@dataclass(frozen=True)
class Columns:
    """The picture's digest: per column its highest moment. `bytes` has a row for each of `stacks`, then the rest's."""

    first: int
    last: int
    stacks: tuple[int, ...]
    bytes: tuple[tuple[int, ...], ...]
    reserved: tuple[int, ...]
    t: tuple[float, ...]


@dataclass(frozen=True)
class MemoryAnswer:
    """One device of one file. The caller sets `path` and `rank` where it knows them."""

    device: int
    events: int
    seconds: float | None
    start: int
    end: int
    reserved_end: int
    stacks: tuple[StackInfo, ...]
    peak: Moment
    last: Moment
    steps: int
    steps_from: str
    leaks: tuple[Leak, ...]
    leaks_unknown: str
    oom: OomVerdict | None
    at_oom: Moment | None
    overview: Columns
    detail: Columns | None
    dropped_blocks: int = 0
    unknown_frees: int = 0
    #: reserved and the step's highest active bytes, at each boundary of a step
    reserved_by_step: tuple[int, ...] = ()
    active_by_step: tuple[int, ...] = ()
    #: who asked for segments after the warm-up, and whose blocks keep mostly empty ones at the end
    asked_for: tuple[SegmentsOf, ...] = ()
    kept_open: tuple[SegmentsOf, ...] = ()
    #: bytes of segments in which nothing is at the end
    standing_empty: int = 0
    #: phases of the trace: (event, name)
    phases: tuple[tuple[int, str], ...] = ()
    settings: Mapping[str, str] | None = None
    #: reserved at most if segments were expandable (evidence/memory/expandable.py); None where that is not known
    expandable_reserved: int | None = None
    path: str = ""
    rank: int | None = None

    @property
    def overflowed(self) -> bool:
        """The trace is not whole."""
        return self.dropped_blocks >= thresholds.DROPPED

    @property
    def who(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else f"device {self.device}"

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank, if it is known."""
        return () if self.rank is None else (self.rank,)


def warm_up(boundaries: int) -> int:
    """The number of step boundaries that belong to the warm-up: lazily made state, caches."""
    return max(1, boundaries // 5)


def as_plain(answer: MemoryAnswer) -> dict[str, Any]:
    return asdict(answer)


def from_plain(plain: Mapping[str, Any]) -> MemoryAnswer:
    """The reverse, from JSON. Raises KeyError, TypeError or ValueError for what is none."""
    values = dict(plain)
    values["stacks"] = tuple(_made(StackInfo, s) for s in plain["stacks"])
    values["leaks"] = tuple(_made(Leak, leak) for leak in plain["leaks"])
    for name in ("asked_for", "kept_open"):
        values[name] = tuple(_made(SegmentsOf, s) for s in plain.get(name, ()))
    for name in ("peak", "last", "at_oom"):
        if (moment := plain[name]) is not None:
            values[name] = _made(Moment, {**moment, "holders": tuple(_made(Holder, h) for h in moment["holders"])})
    for name in ("overview", "detail"):
        if (columns := plain[name]) is not None:
            values[name] = _made(Columns, {**columns, "bytes": tuple(map(tuple, columns["bytes"]))})
    if (oom := plain["oom"]) is not None:
        values["oom"] = _made(OomVerdict, {**oom, "segments": tuple(_made(SegmentSpans, s) for s in oom["segments"])})
    return _made(MemoryAnswer, values)


def _made(kind: type[_T], plain: Mapping[str, Any]) -> _T:
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in plain.items() if k in known})


def gib(size: float) -> str:
    """`512 B`, `24 KiB`, `1.5 MiB`, `8.48 GiB`: three figures."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(size) >= unit:
            value = size / unit
            return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {name}"
    return f"{size:.0f} B"
