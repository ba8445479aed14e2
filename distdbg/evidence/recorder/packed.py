"""Pack a reduced recorder dump as one line of JSON and some bytes, for the way back from the process that read it.

    {"timeout_s": 600.0, "signatures": [[operation, must_agree, sizes], …], "transfers": [[…], …],
     "entries": 2000, "overrun": true, "unused": {"it has no 'state'": 3}, "unused_ranks": {},
     "groups": [{"name": "0", "description": "default_pg", "comm": "nccl", "started": true, "lines": [],
                 "ranks": [0, 1], "count": 2000, "first": 1, "timed": false}, …], "bytes": N}

then for each group its sequence numbers (left out where they count up from `first`), signatures, times, flags, and
durations where it is `timed`.
`signatures` are those that were not sent before. Nothing in it can be anything else than numbers and text.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.evidence.recorder.log import GroupLog, RecorderLog, Signature, Signatures, Transfer
from distdbg.evidence.stacks.threads import Frame


def pack(log: RecorderLog, signatures: Signatures, sent: int) -> bytes:
    """`sent` is how many of `signatures` the receiver has already."""
    new = signatures.known[sent:]
    parts = [part for group in log.groups.values() for part in _bytes_of(group)]
    head = {
        "timeout_s": log.timeout_s,
        "entries": log.entries,
        "overrun": log.overrun,
        "unused": log.unused,
        "unused_ranks": log.unused_ranks,
        "signatures": [[s.operation, s.must_agree, s.sizes] for s in new],
        "transfers": [[t.group, t.sends, t.peer, t.done, t.created, t.number] for t in log.transfers],
        "groups": [_head_of(group) for group in log.groups.values()],
        "bytes": sum(map(len, parts)),
    }
    return b"".join([json.dumps(head).encode(), b"\n", *parts])


def _head_of(group: GroupLog) -> dict[str, Any]:
    first = group.sequence[0] if isinstance(group.sequence, range) else None
    return {"name": group.name, "description": group.description, "comm": group.comm, "started": group.started,
            "lines": [[f.function, f.file, f.line] for f in group.lines],
            "ranks": group.ranks, "count": len(group.done), "first": first, "timed": bool(group.duration)}  # fmt: skip


def _bytes_of(group: GroupLog) -> list[bytes]:
    numbers = [group.sequence.tobytes()] if isinstance(group.sequence, array) else []
    return [*numbers, group.signature.tobytes(), group.created.tobytes(), bytes(group.done), group.duration.tobytes()]


class Unpacker:
    """What one sender sends, in the order it was sent; its signatures get the receiver's numbers."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._numbers: list[int] = []
        #: ranks of groups: most ranks' dumps name the same
        self._ranks: dict[tuple[int, ...], tuple[int, ...]] = {}

    def unpack(self, head: Mapping[str, Any], body: bytes) -> RecorderLog:
        for operation, must_agree, sizes in head["signatures"]:
            self._numbers.append(self._signatures.add(Signature(operation, _frozen(must_agree), sizes)))
        plain = {name: head[name] for name in ("timeout_s", "entries", "overrun", "unused", "unused_ranks")}
        log = RecorderLog(**plain)
        log.transfers = [Transfer(*fields) for fields in head["transfers"]]
        at = 0
        for described in head["groups"]:
            log.groups[described["name"], described["comm"]], at = self._group(described, body, at)
        return log

    def _group(self, described: Mapping[str, Any], body: bytes, at: int) -> tuple[GroupLog, int]:
        count = described["count"]
        sequence: Sequence[int] = (
            range(described["first"], described["first"] + count) if described["first"] is not None else ()
        )
        if described["first"] is None:
            sequence, at = _array("q", body, at, count)
        theirs, at = _array("I", body, at, count)
        created, at = _array("q", body, at, count)
        numbers = self._signatures.shared(array("I", map(self._numbers.__getitem__, theirs)))
        done, at = bytearray(body[at : at + count]), at + count
        duration, at = _array("f", body, at, count if described["timed"] else 0)
        ranks = tuple(described["ranks"])
        shared = self._ranks.setdefault(ranks, ranks)
        named = described["name"], described["description"]
        lines = tuple(Frame(*line) for line in described["lines"])
        log = GroupLog(
            *named, sequence, numbers, created, done, duration, shared, described["comm"], described["started"], lines
        )
        return log, at


def _array(kind: str, body: bytes, at: int, count: int) -> tuple[array[Any], int]:
    found: array[Any] = array(kind)
    end = at + count * found.itemsize
    found.frombytes(body[at:end])
    return found, end


def _frozen(value: Any) -> Any:  # noqa: ANN401
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value
