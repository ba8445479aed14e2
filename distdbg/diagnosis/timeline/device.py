"""The device timeline: the oldest operation that each rank's device has not completed.

A host only enqueues an operation of NCCL and goes on, so the place of the host says nothing about what the device waits
for. The flight recorder of ProcessGroupNCCL does. On gloo host and device are one, and nothing here applies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.log import Transfer


@dataclass(frozen=True)
class OpenOperation:
    """One operation that a device has not completed: a collective of `group`, or a `transfer`.

    `group` is an index into the known groups, -1 for a transfer. `created` is when the host enqueued it, in ns since
    the epoch. `started` is None where the recorder has no start times.
    """

    created: int
    group: int = -1
    sequence: int = 0
    signature: int = 0
    started: bool | None = None
    transfer: Transfer | None = None


def open_operations(dump: Dump, known: Sequence[Group]) -> dict[int, OpenOperation]:
    """By rank, the oldest operation over all groups. A rank whose device has completed everything is left out."""
    found: dict[int, OpenOperation] = {}
    for number, group in enumerate(known):
        if not group.on_device:
            continue
        for rank, log in group.logs.items():
            at = log.first_open
            if at is not None and (rank not in found or log.created[at] < found[rank].created):
                found[rank] = OpenOperation(
                    log.created[at], number, log.sequence[at], log.signature[at], started=log.started
                )
    for rank, had in dump.ranks.items():
        opened = [t for t in had.recorder.transfers if not t.done] if had.recorder is not None else []
        oldest = min(opened, key=lambda t: t.created, default=None)
        if oldest is not None and (rank not in found or oldest.created < found[rank].created):
            found[rank] = OpenOperation(oldest.created, transfer=oldest)
    return found


def stuck_devices(known: Sequence[Group], opened: Mapping[int, OpenOperation]) -> dict[int, OpenOperation]:
    """Ranks whose own device does not finish an operation that every member of the group has enqueued.

    Either other members have completed it, or the devices of others have started it and this one has not, or there is
    no other member. An operation
    that is queued behind an older one of another group is not among them: that one is the rank's oldest.
    """
    waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, operation in opened.items():
        if operation.transfer is None:
            waiting[operation.group, operation.sequence].append(rank)
    found: dict[int, OpenOperation] = {}
    for (number, sequence), ranks in waiting.items():
        group = known[number]
        if not all(_enqueued(group, rank, sequence, opened[ranks[0]].signature) for rank in group.ranks):
            continue
        late = [rank for rank in ranks if not opened[rank].started]
        if len(group.ranks) == 1 or any(_completed(group, rank, sequence) for rank in group.ranks):
            late = ranks
        elif not any(opened[rank].started for rank in ranks):
            continue
        found.update({rank: opened[rank] for rank in late})
    return found


def _enqueued(group: Group, rank: int, sequence: int, signature: int) -> bool:
    log = group.logs.get(rank)
    if log is None or log.last < sequence:
        return False
    at = log.index(sequence)
    return at is None or log.signature[at] == signature


def _completed(group: Group, rank: int, sequence: int) -> bool:
    log = group.logs[rank]
    at = log.index(sequence)
    older = bool(log.sequence) and sequence < log.sequence[0]  # than what is kept
    return older if at is None else bool(log.done[at])
