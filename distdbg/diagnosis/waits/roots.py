"""Ranks that are in the same broadcast, reduce, gather or scatter, but with different roots.

The flight recorder does not know roots; the calls that the ranks wrote down do. Without them such a job looks like one
whose network is cut: all have come, and nobody is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.timeline.call_lines import call_of
from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.mismatch import Mismatch, Side
from distdbg.evidence.dump import Dump
from distdbg.evidence.ops import OPERATIONS

_WORDS = {op.name: {"src": "from", "dst": "to"}[op.root] for op in OPERATIONS if op.root and not op.of_objects}


def other_root(dump: Dump, known: Iterable[Group], waits: Iterable[Wait]) -> Mismatch | None:
    """Among the operations that somebody waits in, the first of which two roots were given."""
    places = {(wait.group, wait.sequence) for wait in waits if wait.sequence is not None}
    found = [
        mismatch
        for group in known
        for name, sequence in places
        if name == group.name and sequence is not None and (mismatch := _at(dump, group, sequence)) is not None
    ]
    return min(found, key=lambda m: (m.sequence, m.group.name), default=None)


def _at(dump: Dump, group: Group, sequence: int) -> Mismatch | None:
    sides: dict[int, list[int]] = defaultdict(list)
    signature = None
    for rank in group.ranks:
        log, had = group.logs.get(rank), dump.ranks.get(rank)
        at = log.index(sequence) if log is not None else None
        if log is None or had is None or at is None:
            continue
        mine = dump.signatures[log.signature[at]]
        if mine.operation not in _WORDS:
            return None
        call = call_of(had, log.created[at])
        if call is not None and call.peer is not None:
            signature = signature or mine
            sides[call.peer].append(rank)
    if signature is None or len(sides) < 2:
        return None
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    named = [
        Side(replace(signature, operation=f"{signature.operation} {_WORDS[signature.operation]} rank {root}"), tuple(r))
        for root, r in ordered
    ]
    return Mismatch(group, sequence, tuple(named), open=True)
