"""One rank's dump of torch's flight recorder, reduced to a few arrays for each group: what began, what is finished.

Sizes of some operations differ by right: a gather's root has outputs, an all_to_all has splits.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from distdbg.evidence.ops import find
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import MOST_RANKS, fold_ranks, unfold_ranks

_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8"}
#: torch's list of a group's ranks, or that list as a capture of ours folds it: [0-16383]
_RANKS = re.compile(r"\[\s*\d{1,8}(?:\s*,\s*\d{1,8})*\s*\]")
_FOLDED = re.compile(r"\[([\d,-]{1,100000})\]")
_NUMBER = re.compile(r"\d+")
LONGEST_NAME = 200
#: Parts of a coalesced operation that are shown to people.
_MAX_PARTS_SHOWN = 4
#: Parts of a coalesced operation that are compared between ranks.
_MAX_PARTS_COMPARED = 4096
#: Backends whose operations a host only enqueues.
ON_DEVICE = frozenset({"nccl", "nccl2", "nccl-lazy", "ncclx", "rccl", "xccl", "hccl"})


@dataclass(frozen=True, slots=True)
class Signature:
    """What must agree: the operation, and where it must the sizes and types of its input. `sizes` are for people."""

    operation: str
    must_agree: tuple[object, ...]
    sizes: str
    #: the number of operations that are coalesced in this one
    parts: int = 1

    @property
    def rooted(self) -> bool:
        """A root sends or receives: a rank may complete its part while others have not begun theirs."""
        known = find(self.operation)
        return known is not None and bool(known.root)

    @property
    def one_int32(self) -> bool:
        """Its input is one tensor of int32."""
        return self.must_agree[1:] == (("Int",),)

    def __str__(self) -> str:
        return f"{self.operation} {self.sizes}".rstrip()


class Signatures:
    """Numbers for signatures, shared by all ranks, so that a rank's history is an array of small numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._coalesced: dict[tuple[int, int], int] = {}
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
        """Signatures that agree share a number: fields that may differ between ranks are ignored."""
        agreeing = ("", signature.operation, signature.must_agree)
        number = self._numbers.setdefault(agreeing, len(self.known))
        if number == len(self.known):
            self.known.append(signature)
        return number

    def coalesce(self, begun: int, part: int) -> int:
        """Return the signature of a coalesced operation: `begun`, the signature of its first parts, and one more part.

        Each part must agree between ranks.
        """
        number = self._coalesced.get((begun, part))
        if number is None:
            number = self._coalesced[begun, part] = self._add_coalesced(begun, part)
        return number

    def _add_coalesced(self, begun: int, part: int) -> int:
        first, added = self.known[begun], self.known[part]
        if first.parts >= _MAX_PARTS_COMPARED:
            return begun
        operation = first.operation if first.operation == added.operation else "coalesced"
        sizes = first.sizes
        if first.parts < _MAX_PARTS_SHOWN:
            sizes = f"{first.sizes} + {added.sizes}"
        elif first.parts == _MAX_PARTS_SHOWN:
            sizes = f"{first.sizes} + …"
        # A digest, not the two numbers: readers in other processes number signatures differently.
        content = repr((first.operation, first.must_agree, added.operation, added.must_agree))
        digest = blake2b(content.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
        return self.add(Signature(operation, ("coalesced", digest), sizes, first.parts + 1))

    def shared(self, history: array[int]) -> array[int]:
        """The same array for all ranks that did the same: most of a job's ranks do."""
        key = (len(history), hash(history.tobytes()))
        kept = self._histories.setdefault(key, history)
        return kept if kept == history else history

    def members(self, text: object) -> tuple[int, ...]:
        """The ranks of a group, as a recorder writes them; one tuple for all ranks that write the same.

        Empty where the recorder does not say. Raises ValueError with a clause about what is wrong with the text.
        """
        if not isinstance(text, str) or text in ("", "[]"):
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
    #: ms on the device from its start to its end, 0 for an operation without that; empty where no operation has it
    #: (ProcessGroupNCCL measures it with TORCH_NCCL_ENABLE_TIMING or TORCH_NCCL_DESYNC_DEBUG)
    duration: array[float] = field(default_factory=lambda: array("f"))
    #: global ranks of its members, where the recorder has them (NCCL's does, gloo's does not)
    ranks: tuple[int, ...] = ()
    #: the backend of these operations: nccl, gloo, …; empty where no operation was recorded
    comm: str = ""
    #: whether the device has begun the oldest open operation; None where start times are not recorded
    started: bool | None = None
    #: the user's lines that enqueued the oldest open operation, innermost first; a pickle has them, JSON does not
    lines: tuple[Frame, ...] = ()
    #: the newest sequence number that the host enqueued, where that is known and its operation is not
    enqueued: int = 0
    #: the newest sequence number that the device completed, where that is known and its operation is not
    completed: int = 0

    @property
    def on_device(self) -> bool:
        """Its operations run on a stream of a device, and the host goes on as soon as one is enqueued."""
        return self.comm in ON_DEVICE

    @property
    def last(self) -> int:
        """The sequence number enqueued last; 0 where there is none."""
        return max(self.enqueued, self.sequence[-1] if self.sequence else 0)

    def completes(self, sequence: int) -> bool:
        """The device has completed it; also where it is older than what is kept."""
        at = self.index(sequence)
        if at is not None:
            return bool(self.done[at])
        return sequence <= self.completed or (bool(self.sequence) and sequence < self.sequence[0])

    @property
    def newest_completed(self) -> int:
        """The sequence number completed last; 0 where none is known."""
        at = self.done.rfind(1)
        return max(self.completed, self.sequence[at] if at >= 0 else 0)

    @property
    def first_open(self) -> int | None:
        """Index of the oldest operation that is not finished."""
        at = self.done.find(0)
        return at if at >= 0 else None

    def index(self, sequence: int) -> int | None:
        """The index of `sequence`; None where it was never begun, or is too old to be kept."""
        at = sequence - (self.sequence[0] if self.sequence else 0)
        if 0 <= at < len(self.sequence) and self.sequence[at] == sequence:
            return at
        try:  # holes: numbers of operations that are not recorded
            return self.sequence.index(sequence)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or recv that a recorder knows (NCCL's does): `peer` as the group counts, None where a log does not tell;
    `number` as its group counts transfers; those of one batch share it."""

    group: str
    sends: bool
    peer: int | None
    done: bool
    created: int
    number: int = 0


@dataclass(slots=True)
class RecorderLog:
    """One rank's recorder. `groups` has them by name and backend: `cpu:gloo,cuda:nccl` is one group with two logs."""

    groups: dict[tuple[str, str], GroupLog] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    #: smallest timeout of any operation kept, in seconds
    timeout_s: float | None = None
    #: how many entries the recorder has, and how many of them are not used, by the reason
    entries: int = 0
    #: entries before these were made and are not kept
    overrun: bool = False
    unused: dict[str, int] = field(default_factory=dict)
    #: groups whose list of ranks is not used: name -> reason
    unused_ranks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def joined(cls, logs: Sequence[RecorderLog]) -> RecorderLog | None:
        """The recorders of one process as one: no two have operations of the same backend. None for none."""
        if len(logs) < 2:
            return logs[0] if logs else None
        return cls(
            {key: group for log in logs for key, group in log.groups.items()},
            [transfer for log in logs for transfer in log.transfers],
            min((log.timeout_s for log in logs if log.timeout_s is not None), default=None),
            sum(log.entries for log in logs),
            any(log.overrun for log in logs),
            {because: sum(log.unused.get(because, 0) for log in logs) for log in logs for because in log.unused},
            {name: because for log in logs for name, because in log.unused_ranks.items()},
        )

    @property
    def on_device(self) -> bool:
        return any(group.on_device for group in self.groups.values())

    @property
    def progress(self) -> tuple[object, ...]:
        """What changes when the host enqueues anything or the device completes anything."""
        groups = [(key, log.last, log.newest_completed) for key, log in sorted(self.groups.items()) if log.on_device]
        return (*groups, len(self.transfers), sum(transfer.done for transfer in self.transfers))

    @property
    def newest_ns(self) -> int:
        """When the newest operation was created; 0 if there is none."""
        times = [group.created[-1] for group in self.groups.values() if len(group.created)]
        return max([*times, *(t.created for t in self.transfers)], default=0)

    @property
    def world(self) -> tuple[int, ...]:
        """The ranks of the default group; empty if they are not known."""
        groups = (group for group in self.groups.values() if group.description == "default_pg")
        return next((group.ranks for group in groups if group.ranks), ())

    @property
    def largest_group(self) -> tuple[int, ...]:
        """The ranks of the largest group."""
        return max((group.ranks for group in self.groups.values()), key=len, default=())

    def why_not_of(self, rank: int) -> str:
        """Why the recorder cannot be that of `rank`; empty if it can."""
        if not self.world or rank in self.world:
            return ""
        return f"it was given as that of rank {rank}, but the ranks of its default group are {fold_ranks(self.world)}"

    def losses(self) -> Iterator[tuple[str, str]]:
        """(what of it is not used, why), for the report."""
        for because, count in self.unused.items():
            yield f"{count:,} of {self.entries:,} entr{'y' if self.entries == 1 else 'ies'}", because
        for group, because in self.unused_ranks.items():
            yield f"the ranks of group {group!r}", because


def _members(text: str) -> tuple[int, ...]:
    """The ranks in the order of the text, which is the group's own."""
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


def _signature(profiling_name: object, sizes: object, types: object) -> Signature:
    operation = str(profiling_name).rpartition(":")[2][:LONGEST_NAME]
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
