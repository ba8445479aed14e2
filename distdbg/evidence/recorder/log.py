"""torch's flight recorder, one rank's dump reduced to a few arrays a group: what was begun, what is finished.

The form is torch's own (torch/csrc/distributed/c10d/FlightRecorder.hpp), from JSON or from a pickle. Two traps are
known. On gloo `state` stays "scheduled" and completion is `retired`; send and recv are not recorded there. Sizes of
some operations differ by right: a gather's root has outputs, an all_to_all has splits.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distdbg.evidence.ops import find
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import MOST_RANKS, unfold_ranks

_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8"}
#: torch's list of a group's ranks, or that list as a capture of ours folds it: [0-16383]
_RANKS = re.compile(r"\[\s*\d{1,8}(?:\s*,\s*\d{1,8})*\s*\]")
_FOLDED = re.compile(r"\[([\d,-]{1,100000})\]")
_NUMBER = re.compile(r"\d+")
_MOST = 2**63
_LONGEST_NAME = 200
_LONGEST_PATH = 4096
_MOST_FRAMES = 200
#: Different reasons why entries are not used; more of them are counted under one.
_MOST_REASONS = 8
#: Backends whose operations a host only enqueues.
ON_DEVICE = frozenset({"nccl", "nccl2", "ncclx", "rccl", "xccl", "hccl"})
#: The name of the entry that closes a coalesced call.
_CLOSES = ":coalesced"
_PEERS = re.compile(r"\b(?P<way>send|recv) (?P<me>\d+)(?:->|<-)(?P<peer>\d+)")


@dataclass(frozen=True, slots=True)
class Signature:
    """What must agree: the operation, and where it must the sizes and types of its input. `sizes` are for people."""

    operation: str
    must_agree: tuple[object, ...]
    sizes: str

    def __str__(self) -> str:
        return f"{self.operation} {self.sizes}".rstrip()


class Signatures:
    """Numbers for signatures, shared by all ranks, so that a rank's history is an array of small numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._histories: dict[tuple[int, int], array[int]] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self.known: list[Signature] = []

    def number(self, key: tuple[object, object, object]) -> int:
        """`key` is the profiling name, the sizes and the types of the input, as frozen tuples."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self.add(_signature(*key))
        return number

    def add(self, signature: Signature) -> int:
        """Signatures that agree share a number: what may differ by right is not told apart."""
        agreeing = ("", signature.operation, signature.must_agree)
        number = self._numbers.setdefault(agreeing, len(self.known))
        if number == len(self.known):
            self.known.append(signature)
        return number

    def shared(self, history: array[int]) -> array[int]:
        """The same array for all ranks that did the same: most of a job's ranks do."""
        key = (len(history), hash(history.tobytes()))
        kept = self._histories.setdefault(key, history)
        return kept if kept == history else history

    def members(self, text: object) -> tuple[int, ...]:
        """Of a group, as a recorder writes them; one tuple for all ranks that write the same.

        Empty where the recorder does not say. Raises ValueError with a clause about what is wrong with the text.
        """
        if not isinstance(text, str) or not text:
            return ()
        found = self._members.get(text)
        if found is None:
            found = self._members[text] = _members(text)
        return found

    def __getitem__(self, number: int) -> Signature:
        return self.known[number]


@dataclass(slots=True)
class GroupLog:
    """One rank's collectives in one group, oldest first: parallel arrays. `created` is ns since the epoch.

    `sequence` is a range where no number is missing, which is nearly always. An array of signatures may be another
    rank's as well: it is never changed.
    """

    name: str
    description: str
    sequence: Sequence[int] = ()
    signature: array[int] = field(default_factory=lambda: array("I"))
    created: array[int] = field(default_factory=lambda: array("q"))
    done: bytearray = field(default_factory=bytearray)
    #: global ranks of its members, where the recorder tells them (NCCL's does, gloo's does not)
    ranks: tuple[int, ...] = ()
    #: the backend of these operations: nccl, gloo, …; empty where no operation was recorded
    comm: str = ""
    #: whether the device has begun the oldest open operation; None where start times are not recorded
    #: (ProcessGroupNCCL records them with TORCH_NCCL_ENABLE_TIMING or TORCH_NCCL_DESYNC_DEBUG)
    started: bool | None = None
    #: the user's lines that enqueued the oldest open operation, innermost first; a pickle has them, JSON does not
    lines: tuple[Frame, ...] = ()
    #: the newest sequence number that the host enqueued, where that is known and its operation is not
    enqueued: int = 0

    @property
    def on_device(self) -> bool:
        """Its operations run on a stream of a device, and the host goes on as soon as one is enqueued."""
        return self.comm in ON_DEVICE

    @property
    def last(self) -> int:
        """The sequence number enqueued last; 0 where there is none."""
        return max(self.enqueued, self.sequence[-1] if self.sequence else 0)

    @property
    def first_open(self) -> int | None:
        """Index of the oldest operation that is not finished."""
        at = self.done.find(0)
        return at if at >= 0 else None

    def index(self, sequence: int) -> int | None:
        """Where `sequence` stands; None where it was never begun, or is too long ago to be kept."""
        at = sequence - (self.sequence[0] if self.sequence else 0)
        if 0 <= at < len(self.sequence) and self.sequence[at] == sequence:
            return at
        try:  # holes: numbers of operations that are not recorded
            return self.sequence.index(sequence)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or recv that a recorder knows (NCCL's does): `peer` as the group counts."""

    group: str
    sends: bool
    peer: int
    done: bool
    created: int


@dataclass(slots=True)
class RecorderLog:
    """One rank's recorder. `groups` has them by name and backend: `cpu:gloo,cuda:nccl` is one group with two logs."""

    groups: dict[tuple[str, str], GroupLog] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    #: smallest timeout of any operation kept, in seconds
    timeout_s: float | None = None
    #: how many entries the recorder has, and how many of them are not used, by the reason
    entries: int = 0
    unused: dict[str, int] = field(default_factory=dict)
    #: groups whose list of ranks is not used: name -> reason
    unused_ranks: dict[str, str] = field(default_factory=dict)

    @property
    def on_device(self) -> bool:
        return any(group.on_device for group in self.groups.values())

    def losses(self) -> Iterator[tuple[str, str]]:
        """(what of it is not used, why), for the report."""
        for because, count in self.unused.items():
            yield f"{count:,} of {self.entries:,} entr{'y' if self.entries == 1 else 'ies'}", because
        for group, because in self.unused_ranks.items():
            yield f"the ranks of group {group!r}", because


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


class _Growing:
    """A group's history while it is read."""

    __slots__ = (
        "comm", "created", "description", "done", "frames", "last", "name", "own", "sequence", "signature", "started",
    )  # fmt: skip

    def __init__(self, name: object, description: object, comm: object, own: object) -> None:
        self.name, self.description, self.comm = _text(name), _text(description), _text(comm)
        self.own = own  # the number of the group object in its process: a name may be given again
        self.last = -1
        self.sequence: list[int] = []
        self.signature = array("I")
        self.created = array("q")
        self.done = bytearray()
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
            comm=self.comm, started=bool(self.started[first_open]) if timed and first_open >= 0 else None,
            lines=_users_lines(self.frames) if first_open >= 0 else (),
        )  # fmt: skip


class _Reading:
    """One dump while it is read. A method a step would cost more than the step: `add` is the whole loop's body."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._number = signatures.number
        self._groups: dict[tuple[str, str], _Growing] = {}
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
                if self._batch[:1] != [(name, entry.get("p2p_seq_id"))]:
                    self._batch = [(name, entry.get("p2p_seq_id"))]
                self._batch.append(len(self._transfers))
                self._transfers.append(Transfer(_text(name), found["way"] == "send", peer, done, int(created)))
            return
        batch, self._batch = self._batch, []
        if batch[:1] == [(name, entry.get("p2p_seq_id"))] and entry["profiling_name"].endswith(_CLOSES):
            for at in batch[1:]:  # they have no events of their own: only this entry is ever completed
                self._transfers[at] = replace(self._transfers[at], done=done)
            return
        comm = entry["profiling_name"].partition(":")[0]
        group = self._groups.get((name, comm))
        if group is None or (sequence < group.last and entry.get("pg_id") != group.own):  # made again under its name
            group = self._groups[name, comm] = _Growing(name, description, comm, entry.get("pg_id"))
        elif sequence == group.last:  # parts of one coalesced call share a number, and its last entry has the events
            group.done[-1] = done if entry["profiling_name"].endswith(_CLOSES) else group.done[-1] & done
            return
        started = entry["state"] == "started" or bool(entry.get("time_discovered_started_ns"))
        sizes, types = entry["input_sizes"], entry["input_dtypes"]
        number = self._number((entry["profiling_name"], tuple(map(tuple, sizes)), tuple(types)))
        group.created.append(created)
        group.sequence.append(sequence)
        group.signature.append(number)
        group.done.append(done)
        group.started.append(started)
        if not done and group.frames is None:
            group.frames = entry.get("frames") or ()
        group.last = sequence

    def finish(self) -> RecorderLog:
        groups = {key: g.finish(self._signatures) for key, g in self._groups.items() if g.sequence}
        seconds = self._shortest / 1000 if self._shortest is not None else None
        return RecorderLog(groups, self._transfers, seconds)


def _users_lines(frames: object) -> tuple[Frame, ...]:
    """`[{"name": …, "filename": …, "line": …}, …]`, innermost first; what is not of this form is left out."""
    found = []
    for frame in frames[:_MOST_FRAMES] if isinstance(frames, (list, tuple)) else ():
        name, file, line = (
            (frame.get(key) for key in ("name", "filename", "line")) if isinstance(frame, Mapping) else ("",) * 3
        )
        if isinstance(name, str) and isinstance(file, str) and type(line) is int:
            found.append(Frame(name[:_LONGEST_NAME], file[:_LONGEST_PATH], max(0, line)))
    return tuple(frame for frame in found if frame.users)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a name")
    return value[:_LONGEST_NAME]


def _members(text: str) -> tuple[int, ...]:
    """In the order that is written, which is the group's own."""
    count = text.count(",") + 1
    if count > MOST_RANKS:
        raise ValueError(f"it lists {count:,} ranks, and no job has more than {MOST_RANKS:,}")
    if _RANKS.fullmatch(text):
        ranks = tuple(map(int, _NUMBER.findall(text)))
    elif folded := _FOLDED.fullmatch(text):
        ranks = unfold_ranks(folded[1])
    else:
        raise ValueError("it is no list of ranks")
    if max(ranks, default=0) >= MOST_RANKS:
        raise ValueError(f"it names rank {max(ranks):,}, and no job has more than {MOST_RANKS:,} ranks")
    if len(set(ranks)) < len(ranks):
        raise ValueError("it names a rank twice")
    return ranks


def _add_ranks(log: RecorderLog, groups: object, signatures: Signatures) -> None:
    """`{"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}`. gloo's has one alone, under "": the default
    group's, whose ranks are gone once another group was made.
    """
    by_name: dict[object, list[GroupLog]] = {}
    for group in log.groups.values():
        by_name.setdefault(group.name, []).append(group)
        if group.description == "default_pg" and group.name:
            by_name.setdefault("", []).append(group)
    for name, told in groups.items() if isinstance(groups, Mapping) else ():
        if name not in by_name or not isinstance(told, Mapping):
            continue  # a group without any operation: nothing is said about it
        try:
            members = signatures.members(told.get("ranks"))
        except ValueError as error:
            log.unused_ranks[name] = str(error)[:_LONGEST_NAME]
            continue
        for group in by_name[name]:
            group.ranks = members or group.ranks


def _signature(profiling_name: object, sizes: object, types: object) -> Signature:
    operation = str(profiling_name).rpartition(":")[2][:_LONGEST_NAME]
    known = find(operation)
    if known is not None and not known.is_transfer:
        operation = known.name
    shown = ", ".join(f"{_type(t)}{list(s)}" for s, t in _pairs(sizes, types))
    return Signature(operation, (sizes, types) if known is not None and known.equal_inputs else (), shown)


def _pairs(sizes: object, types: object) -> Iterator[tuple[Sequence[int], object]]:
    kinds = types if isinstance(types, tuple) else ()
    for number, size in enumerate(sizes if isinstance(sizes, tuple) else ()):
        yield size, kinds[number] if number < len(kinds) else ""


def _type(name: object) -> str:
    return _TYPES.get(str(name), str(name).lower())
