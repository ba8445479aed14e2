"""torch's flight recorder, one rank's dump reduced to a few arrays a group: what was begun, what is finished.

The form is torch's own (torch/csrc/distributed/c10d/FlightRecorder.hpp), from JSON or from a pickle. Two traps are
known. On gloo `state` stays "scheduled" and completion is `retired`; send and recv are not recorded there. Sizes of
some operations differ by right: a gather's root has outputs, an all_to_all has splits.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Operations whose inputs must be of one size and type on every rank of the group.
_EQUAL_INPUTS = {"all_reduce", "broadcast", "reduce", "gather", "all_gather", "_all_gather_base",
                 "_reduce_scatter_base", "all_gather_into_tensor_coalesced",
                 "reduce_scatter_tensor_coalesced"}  # fmt: skip
_SPELLINGS = {"_allgather_base": "_all_gather_base", "allreduce": "all_reduce", "allgather": "all_gather"}
_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8"}
_RANKS = re.compile(r"\[\s*\d{1,8}(?:\s*,\s*\d{1,8})*\s*\]")
_NUMBER = re.compile(r"\d+")
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
        self.known: list[Signature] = []

    def number(self, entry: Mapping[str, Any]) -> int:
        key = (entry.get("profiling_name"), _frozen(entry.get("input_sizes")), _frozen(entry.get("input_dtypes")))
        number = self._numbers.get(key)
        if number is None:
            signature = _signature(*key)
            # Signatures that agree share a number: what may differ by right is not told apart.
            agreeing = ("", signature.operation, signature.must_agree)
            number = self._numbers.get(agreeing, len(self.known))
            if number == len(self.known):
                self.known.append(signature)
                self._numbers[agreeing] = number
            self._numbers[key] = number
        return number

    def __getitem__(self, number: int) -> Signature:
        return self.known[number]


@dataclass(slots=True)
class GroupLog:
    """One rank's collectives in one group, oldest first: parallel arrays. `created` is ns since the epoch."""

    name: str
    description: str
    sequence: array[int] = field(default_factory=lambda: array("q"))
    signature: array[int] = field(default_factory=lambda: array("L"))
    created: array[int] = field(default_factory=lambda: array("q"))
    done: bytearray = field(default_factory=bytearray)
    #: global ranks of its members, where the recorder tells them (NCCL's does, gloo's does not)
    ranks: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The sequence number enqueued last; 0 where there is none."""
        return self.sequence[-1] if self.sequence else 0

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
    """One rank's recorder. `comm` is the backend that spoke: nccl, gloo, …"""

    groups: dict[str, GroupLog] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    comm: str = ""
    #: smallest timeout of any operation kept, in seconds
    timeout_s: float | None = None


def read_recorder(dump: object, signatures: Signatures) -> RecorderLog | None:
    """None for what is no recorder's dump; entries that are not of the known form are left out."""
    if not isinstance(dump, Mapping) or not isinstance(entries := dump.get("entries"), Sequence):
        return None
    log = RecorderLog()
    shortest = None
    for entry in entries:
        try:
            _add(log, entry, signatures)
            timeout = entry.get("timeout_ms")
            if timeout and (shortest is None or timeout < shortest):
                shortest = timeout
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):  # noqa: PERF203 -- one bad entry
            continue
    log.timeout_s = shortest / 1000 if isinstance(shortest, int) else None
    _add_ranks(log, dump.get("pg_config"))
    return log


def _add_ranks(log: RecorderLog, groups: object) -> None:
    """`{"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}`; gloo's has one without ranks, under ""."""
    for name, told in groups.items() if isinstance(groups, Mapping) else ():
        ranks = told.get("ranks") if isinstance(told, Mapping) else None
        if name in log.groups and isinstance(ranks, str) and _RANKS.fullmatch(ranks):
            log.groups[name].ranks = tuple(map(int, _NUMBER.findall(ranks)))


def _add(log: RecorderLog, entry: Mapping[str, Any], signatures: Signatures) -> None:
    name, description = entry["process_group"]
    done = bool(entry["retired"] or entry["state"] == "completed")
    created = int(entry["time_created_ns"])
    if entry["is_p2p"]:
        if found := _PEERS.search(entry["profiling_name"]):
            log.transfers.append(Transfer(name, found["way"] == "send", int(found["peer"]), done, created))
        return
    group = log.groups.get(name)
    if group is None:
        group = log.groups[name] = GroupLog(name, description)
        log.comm = log.comm or entry["profiling_name"].partition(":")[0]
    sequence = int(entry["collective_seq_id"])
    if group.sequence and sequence == group.sequence[-1]:  # parts of one coalesced call share a number
        group.done[-1] &= done
        return
    number = signatures.number(entry)
    group.sequence.append(sequence)
    group.signature.append(number)
    group.created.append(created)
    group.done.append(done)


def _signature(profiling_name: object, sizes: object, types: object) -> Signature:
    operation = str(profiling_name).rpartition(":")[2]
    operation = _SPELLINGS.get(operation, operation)
    shown = ", ".join(f"{_type(t)}{list(s)}" for s, t in _pairs(sizes, types))
    return Signature(operation, (sizes, types) if operation in _EQUAL_INPUTS else (), shown)


def _pairs(sizes: object, types: object) -> Iterator[tuple[Sequence[int], object]]:
    kinds = types if isinstance(types, tuple) else ()
    for number, size in enumerate(sizes if isinstance(sizes, tuple) else ()):
        yield size if isinstance(size, tuple) else (size,), kinds[number] if number < len(kinds) else ""


def _type(name: object) -> str:
    words = {
        "Float": "float32",
        "Double": "float64",
        "Half": "float16",
        "Long": "int64",
        "Int": "int32",
        "Byte": "uint8",
    }
    return words.get(str(name), str(name).lower())


def _frozen(value: object) -> object:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value
