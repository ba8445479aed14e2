"""Merge the traces of all ranks into one file, on one clock, with one piece of one trace in memory."""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from distdbg.collect.files.trace_files import pieces
from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.evidence.trace.clock import Collectives, HostClock, host_clock
from distdbg.evidence.trace.marks import HEADER
from distdbg.evidence.trace.merge import Renumbering, TraceSlot
from distdbg.evidence.trace.text import NoTrace, TraceSplitter
from distdbg.whole_file import WholeFile, make_private_folder, refuse_linked_folder

#: Events that are written together; ten times as many leave the processor's cache, and take a sixth longer.
_BATCH = 100


@dataclass(frozen=True)
class RankTrace:
    """One rank's trace; `host` is empty where it is not known."""

    rank: int
    path: Path
    host: str = ""


@dataclass(frozen=True)
class Merged:
    """What became of a merge: `cut` has the traces that were used as far as they go, and why: path -> words."""

    path: Path
    events: int
    clocks: tuple[HostClock, ...]
    cut: Mapping[Path, str]


def merge(traces: Sequence[RankTrace], target: Path, say: Callable[[str], None]) -> Merged:
    """Write all of `traces` into one file for Perfetto, packed, under another name first; `say` hears how far it is.

    Raises EvidenceUnreadable where no trace has any event, Refused where the file cannot be written.
    """
    heads = [_head(trace) for trace in traces]
    base = next((head.base_ns for head in heads if head.base_ns is not None), 0)
    heads = [head if head.base_ns is not None else replace(head, base_ns=base) for head in heads]
    clocks = _clocks(heads, base, say)
    offsets = {clock.host: clock.offset_us or 0.0 for clock in clocks}
    cut: dict[Path, str] = {}
    count = 0
    about = {"ranks": [{"rank": h.trace.rank, "host": h.host, "file": str(h.trace.path)} for h in heads],
             "clocks": [vars(clock) for clock in clocks]}  # fmt: skip
    start = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base, HEADER: about}
    try:
        make_private_folder(target.parent)
        refuse_linked_folder(target.parent)
        with WholeFile(target) as file, _TraceWriter(file, start) as writer:
            for index, head in enumerate(heads):
                say(f"merging rank {head.trace.rank}, {index + 1} of {len(heads)}")
                place = TraceSlot(
                    head.trace.rank, head.host, index, len(heads), head.shift_us(base) + offsets[head.host]
                )
                trace = _TraceEvents(head.trace.path)
                count += writer.add(Renumbering(place), trace)
                if trace.cut:
                    cut[head.trace.path] = trace.cut
            if not count:
                whys = "; ".join(f"{str(p)!r}: {why}" for p, why in cut.items())
                raise EvidenceUnreadable(whys or "no trace has events", "Take the profile again.")
    except OSError as error:
        raise Refused(
            f"the merged profile cannot be written to {str(target)!r}: {error.strerror}", "Free some space there."
        ) from None
    return Merged(target, count, tuple(clocks), cut)


class _TraceEvents:
    """A trace's events; then `cut` says in words why it has no more, empty where it was read to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._splitter = TraceSplitter()
        self.cut = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        splitter = self._splitter
        try:
            for piece in pieces(self._path):
                yield from splitter.feed(piece)
            splitter.close()
            if not splitter.whole:
                self.cut = splitter.broken or f"it is cut short after {splitter.events:,} events"
        except NoTrace as error:
            self.cut = str(error)
        except OSError as error:
            self.cut = f"it cannot be read: {error.strerror}"

    def header(self) -> dict[str, Any]:
        """The text before the events."""
        next(iter(self), None)
        return self._splitter.header


@dataclass(frozen=True)
class _Head:
    """What a trace says beside its events. `base_ns` is what its times count from."""

    trace: RankTrace
    host: str
    base_ns: int | None

    def shift_us(self, base_ns: int) -> float:
        return ((self.base_ns or 0) - base_ns) / 1000


def _head(trace: RankTrace) -> _Head:
    header = _TraceEvents(trace.path).header()
    own = header.get(HEADER)
    host = own.get("host") if isinstance(own, dict) else header.get("host_name")
    base = header.get("baseTimeNanoseconds")
    if not isinstance(base, int):
        base = _base_at_the_end(trace.path)
    return _Head(trace, trace.host or (host if isinstance(host, str) else ""), base)


def _base_at_the_end(path: Path) -> int | None:
    """Older versions of torch write it behind the events, the oldest nowhere: 0. None where the end is missing."""
    end = ""
    with contextlib.suppress(OSError):
        for piece in pieces(path):
            end = (end + piece)[-4096:]
    found = re.search(r'"baseTimeNanoseconds"\s*:\s*(\d+)', end)
    return int(found.group(1)) if found else 0 if end.rstrip().endswith(("}", "]")) else None


def _clocks(heads: Sequence[_Head], base_ns: int, say: Callable[[str], None]) -> list[HostClock]:
    """The clock of each host against the first, by one rank of each host. Ranks of one host share a clock."""
    by_host: dict[str, _Head] = {}
    for head in heads:
        by_host.setdefault(head.host, head)
    (host, first), *others = by_host.items()
    clocks = [HostClock(host, 0.0, 0.0)]
    if not others:
        return clocks
    say("comparing the clocks of the hosts")
    known = _collectives(first, base_ns)
    return clocks + [host_clock(name, known, _collectives(head, base_ns)) for name, head in others]


def _collectives(head: _Head, base_ns: int) -> Collectives:
    found = Collectives(head.shift_us(base_ns))
    for event in _TraceEvents(head.trace.path):
        found.see(event)
    return found


class _TraceWriter:
    """A packed trace, batch by batch. Raises OSError."""

    def __init__(self, file: BinaryIO, start: Mapping[str, Any]) -> None:
        self._file = file
        self._start = json.dumps(start)[:-1] + ', "traceEvents": [\n'
        self._pack = zlib.compressobj(1, zlib.DEFLATED, 31)
        self._encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
        self._first = True

    def __enter__(self) -> _TraceWriter:
        self._put(self._start)
        return self

    def __exit__(self, *_error: object) -> None:
        self._put("\n]}\n")
        self._file.write(self._pack.flush())

    def add(self, renumbering: Renumbering, events: Iterable[dict[str, Any]]) -> int:
        """How many were written."""
        count = 0
        batch: list[dict[str, Any]] = []
        for event in events:
            batch += renumbering.event(event)
            if len(batch) >= _BATCH:
                count += self._write(batch)
                batch = []
        return count + self._write(batch)

    def _write(self, batch: list[dict[str, Any]]) -> int:
        if batch:
            self._put(("" if self._first else ",\n") + self._encode(batch)[1:-1])
            self._first = False
        return len(batch)

    def _put(self, text: str) -> None:
        self._file.write(self._pack.compress(text.encode("utf-8", "replace")))
