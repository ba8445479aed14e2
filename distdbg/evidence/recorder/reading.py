"""Read torch's flight recorder, from JSON or from a pickle, as a RecorderLog: one pass over the entries.

The form is torch's own (torch/csrc/distributed/c10d/FlightRecorder.hpp). Two traps are known. On gloo `state` stays
"scheduled" and completion is `retired`; send and recv are not recorded there.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distdbg.evidence import jsonl
from distdbg.evidence.recorder.log import LONGEST_NAME, GroupLog, RecorderLog, Signatures, Transfer
from distdbg.evidence.stacks.threads import Frame
from distdbg.evidence.templates import Templates
from distdbg.model import MOST_RANKS

_LONGEST_PATH = 4096
_MOST_FRAMES = 200
#: of an operation: a month
_LONGEST_MS = 2.6e9
#: Different reasons why entries are not used; more of them are counted under one.
_MOST_REASONS = 8
#: The name of the entry that closes a coalesced call: `nccl:coalesced`, `nccl:ALLGATHER_coalesced`.
_CLOSES = "coalesced"
_PEERS = re.compile(r"\b(?P<way>send|recv) (?P<me>\d+)(?:->|<-)(?P<peer>\d+)")
_MOST = 2**63
#: when an operation was created, started and completed, and the thread that created it
_OWN = re.compile(r'(_(?:ns": ?|id": ?"))([1-8]\d{14,18})(?=[,}"])')


class RecorderTexts:
    """Reads recorders' dumps in JSON of many ranks; those of ranks that did the same differ only in times."""

    def __init__(self, signatures: Signatures) -> None:
        self._templates = Templates(_OWN, lambda text: read_recorder(jsonl.parse(text), signatures))

    def read(self, text: str) -> RecorderLog | None:
        """None for what is no recorder's dump. Raises what jsonl.parse raises."""
        log, times = self._templates.read(text)
        if log is None:
            return None
        own = times.original
        groups = {key: replace(group, created=array("q", map(own, group.created))) for key, group in log.groups.items()}
        return replace(log, groups=groups, transfers=[replace(t, created=own(t.created)) for t in log.transfers])


def read_recorder(dump: object, signatures: Signatures) -> RecorderLog | None:
    """None for what is no recorder's dump; entries that are not of the known form are counted in `unused`.

    About 2 us an entry; nothing of `dump` is kept.
    """
    if not isinstance(dump, Mapping) or "version" not in dump or "pg_config" not in dump:
        return None
    entries = dump.get("entries", ())  # JSON leaves them out where nothing was recorded
    if not isinstance(entries, (list, tuple)):
        return None
    reading = _Reading(signatures)
    unused: dict[str, int] = {}
    for entry in entries:
        try:
            reading.add(entry)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:  # noqa: PERF203 -- one bad entry
            because = _why_unused(entry, error)
            because = because if because in unused or len(unused) < _MOST_REASONS else "they have other faults"
            unused[because] = unused.get(because, 0) + 1
    log = reading.finish()
    log.entries, log.unused = len(entries), unused
    log.overrun = bool(entries) and isinstance(entries[0], Mapping) and bool(entries[0].get("record_id"))
    _add_ranks(log, dump.get("pg_config"), signatures)
    return log


class _Unusable(ValueError):
    """Says what is wrong with an entry."""


def _why_unused(entry: object, error: Exception) -> str:
    if isinstance(error, _Unusable):
        return str(error)
    if not isinstance(entry, Mapping):
        return "it is no object"
    if isinstance(error, KeyError):
        return f"it has no {str(error.args[0])[:40]!r}"
    return "its fields are not of the form that torch writes"


class _GrowingGroup:
    """A group's history while it is read."""

    __slots__ = (
        "comm", "created", "description", "done", "duration", "frames", "last", "name", "own", "sequence", "signature",
        "started",
    )  # fmt: skip

    def __init__(self, name: object, description: object, comm: object, own: object) -> None:
        self.name, self.description, self.comm = _text(name), _text(description), _text(comm)
        self.own = own  # the number of the group object in its process: a name may be given again
        self.last = -1
        self.sequence: list[int] = []
        self.signature = array("I")
        self.created = array("q")
        self.done = bytearray()
        self.duration = array("f")
        #: by operation, as `done`: the recorder has seen its start
        self.started = bytearray()
        #: of the oldest open operation, as torch writes them
        self.frames: object = None

    def finish(self, signatures: Signatures) -> GroupLog:
        first, count = self.sequence[0], len(self.sequence)
        plain = range(first, first + count)
        sequence = (
            plain if self.last == first + count - 1 and self.sequence == list(plain) else array("q", self.sequence)
        )
        first_open = self.done.find(0)
        timed = any(self.started)
        return GroupLog(
            self.name, self.description, sequence, signatures.shared(self.signature), self.created, self.done,
            duration=self.duration if any(self.duration) else array("f"), comm=self.comm,
            started=bool(self.started[first_open]) if timed and first_open >= 0 else None,
            lines=users_lines(self.frames) if first_open >= 0 else (),
        )  # fmt: skip


class _Reading:
    """One dump while it is read. A method a step would cost more than the step: `add` is the whole loop's body."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._number = signatures.number
        self._groups: dict[tuple[str, str], _GrowingGroup] = {}
        self._transfers: list[Transfer] = []
        #: group and number of the sends and receives that came last, then their places among the transfers
        self._batch: list[Any] = []
        self._shortest: int | None = None

    def add(self, entry: Mapping[str, Any]) -> None:
        name, description = entry["process_group"]
        created = entry["time_created_ns"]
        sequence = entry["collective_seq_id"]
        if not (type(created) is int is type(sequence) and 0 <= created < _MOST and 0 <= sequence < _MOST):
            raise _Unusable("its time or its sequence number is no whole number from 0 to 2^63")
        done = entry["retired"] is True or entry["state"] == "completed"
        timeout = entry.get("timeout_ms")
        # Older torch writes none; the timeout only adds to what the entry says.
        if type(timeout) is int and 0 < timeout < _MOST and (self._shortest is None or timeout < self._shortest):
            self._shortest = timeout
        if entry["is_p2p"]:
            if found := _PEERS.search(entry["profiling_name"]):
                peer = int(found["peer"][:9])
                if peer >= MOST_RANKS:
                    raise _Unusable(f"it names peer {peer}, and no job has more than {MOST_RANKS:,} ranks")
                number = entry.get("p2p_seq_id")
                if self._batch[:1] != [(name, number)]:
                    self._batch = [(name, number)]
                self._batch.append(len(self._transfers))
                number = number if type(number) is int else 0
                self._transfers.append(Transfer(_text(name), found["way"] == "send", peer, done, created, number))
            return
        batch, self._batch = self._batch, []
        if batch[:1] == [(name, entry.get("p2p_seq_id"))] and entry["profiling_name"].endswith(_CLOSES):
            for at in batch[1:]:  # they have no events of their own: only this entry is ever completed
                self._transfers[at] = replace(self._transfers[at], done=done)
            return
        comm = entry["profiling_name"].partition(":")[0]
        group = self._groups.get((name, comm))
        if group is None or (sequence < group.last and entry.get("pg_id") != group.own):  # made again under its name
            group = self._groups[name, comm] = _GrowingGroup(name, description, comm, entry.get("pg_id"))
        elif sequence == group.last:  # parts of one coalesced call share a number, and its last entry has the events
            self._add_part(group, entry, done=done)
            return
        # A backend that does not see starts writes the time of completion as that of the start, too (nccl2).
        began = entry.get("time_discovered_started_ns")
        started = entry["state"] == "started" or (bool(began) and began != entry.get("time_discovered_completed_ns"))
        duration = entry.get("duration_ms")
        number = self._signature_of(entry)
        group.created.append(created)
        group.sequence.append(sequence)
        group.signature.append(number)
        group.done.append(done)
        group.duration.append(duration if type(duration) is float and 0 < duration < _LONGEST_MS else 0.0)
        group.started.append(started)
        if not done and group.frames is None:
            group.frames = entry.get("frames") or ()
        group.last = sequence

    def _add_part(self, group: _GrowingGroup, entry: Mapping[str, Any], *, done: bool) -> None:
        """Add an entry with the number of the group's newest operation: one more part of it, or its end."""
        if entry["profiling_name"].endswith(_CLOSES):
            group.done[-1] = done
        else:
            group.done[-1] &= done
            group.signature[-1] = self._signatures.coalesce(group.signature[-1], self._signature_of(entry))

    def _signature_of(self, entry: Mapping[str, Any]) -> int:
        sizes, types = entry["input_sizes"], entry["input_dtypes"]
        outputs = entry.get("output_sizes", ())
        if len(sizes) == 1 and len(set(map(tuple, outputs))) > 1:  # each rank gathers a part of another size
            sizes, types = outputs, entry["output_dtypes"]
        return self._number((entry["profiling_name"], tuple(map(tuple, sizes)), tuple(types)))

    def finish(self) -> RecorderLog:
        groups = {(g.name, g.comm): g.finish(self._signatures) for g in self._groups.values() if g.sequence}
        seconds = self._shortest / 1000 if self._shortest is not None else None
        return RecorderLog(groups, self._transfers, seconds)


def users_lines(frames: object) -> tuple[Frame, ...]:
    """`[{"name": …, "filename": …, "line": …}, …]`, innermost first; what is not of this form is left out."""
    found = []
    for frame in frames[:_MOST_FRAMES] if isinstance(frames, (list, tuple)) else ():
        name, file, line = (
            (frame.get(key) for key in ("name", "filename", "line")) if isinstance(frame, Mapping) else ("",) * 3
        )
        if isinstance(name, str) and isinstance(file, str) and type(line) is int:
            found.append(Frame(name[:LONGEST_NAME], file[:_LONGEST_PATH], max(0, line)))
    return tuple(frame for frame in found if frame.users)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a name")
    return value[:LONGEST_NAME]


def _add_ranks(log: RecorderLog, groups: object, signatures: Signatures) -> None:
    """`{"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}`. gloo's has one alone, under "": the default
    group's, whose ranks are gone once another group was made.
    """
    by_name: dict[object, list[GroupLog]] = {}
    for group in log.groups.values():
        by_name.setdefault(group.name, []).append(group)
        if group.description == "default_pg" and group.name:
            by_name.setdefault("", []).append(group)
    for name, entry in groups.items() if isinstance(groups, Mapping) else ():
        if name not in by_name or not isinstance(entry, Mapping):
            continue  # a group without any operation: nothing is said about it
        try:
            members = signatures.members(entry.get("ranks"))
        except ValueError as error:
            log.unused_ranks[name] = str(error)[:LONGEST_NAME]
            continue
        for group in by_name[name]:
            group.ranks = members or group.ranks
