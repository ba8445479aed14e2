"""The device timeline: the oldest operation that each rank's device has not completed.

A host only enqueues an operation of NCCL and goes on, so the place of the host says nothing about what the device waits
for. The flight recorder of ProcessGroupNCCL does. On gloo host and device are one, and nothing here applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.log import Signatures, Transfer
from distdbg.model import grouped


@dataclass(frozen=True)
class OpenOperation:
    """One operation that a device has not completed: a collective of `group`, or `transfers` of one batch.

    `group` is an index into the known groups, -1 for transfers. `created` is when the host enqueued it, in ns since
    the epoch. `started` is None where the recorder has no start times.
    """

    created: int
    group: int = -1
    sequence: int = 0
    signature: int = 0
    started: bool | None = None
    transfers: tuple[Transfer, ...] = ()


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
            batch = (t for t in opened if (t.group, t.number) == (oldest.group, oldest.number))
            found[rank] = OpenOperation(oldest.created, transfers=tuple(batch))
    return found


def stuck_devices(
    known: Sequence[Group], opened: Mapping[int, OpenOperation], signatures: Signatures
) -> dict[int, OpenOperation]:
    """Ranks whose own device does not finish an operation that every member of the group has enqueued.

    A rank is returned in three cases: other members have completed the operation, the devices of others have started it
    and this one has not, or the group has no other member. In a broadcast, or another operation with a root, a rank
    completes its part without the others: there only ranks are returned that are known not to have started it. An
    operation behind an older one of another group does not count: the older one is the rank's oldest.

    If the size of the job is not known, a completed operation without a root shows that every rank has enqueued it. A
    device that has not started an operation that others have started is at fault, also if ranks are missing.
    """
    waiting = grouped(((one.group, one.sequence), rank) for rank, one in opened.items() if not one.transfers)
    found: dict[int, OpenOperation] = {}
    for (number, sequence), ranks in waiting.items():
        group, signature = known[number], opened[ranks[0]].signature
        known_members = group.told or group.default
        if not known_members or not all(_enqueued(group, rank, sequence, signature) for rank in group.ranks):
            continue
        completed = any(group.logs[rank].completes(sequence) for rank in group.ranks)
        if (completed and not signatures[signature].rooted) or (group.told and len(group.ranks) == 1):
            late = ranks
        elif any(opened[rank].started for rank in ranks):
            late = [rank for rank in ranks if not opened[rank].started]
        else:
            late = [rank for rank in ranks if completed and opened[rank].started is False]
        found.update({rank: opened[rank] for rank in late})
    return found


def known_to_all(group: Group, sequence: int) -> bool:
    """Every member's log has kept the operation of this number."""
    return all((log := group.logs.get(rank)) is not None and log.index(sequence) is not None for rank in group.ranks)


def _enqueued(group: Group, rank: int, sequence: int, signature: int) -> bool:
    """The same operation, or one that is not kept while the rank waits in the very next one. Of some logs it is only
    known how far a rank has come, and no operation.

    Who has completed more than that has not done so together with a device that is still in this one: its operation of
    this number was another.
    """
    log = group.logs.get(rank)
    if log is None or log.last < sequence:
        return False
    at = log.index(sequence)
    return log.signature[at] == signature if at is not None else list(log.sequence[:1]) == [sequence + 1]
