"""Who waits for whom: standings and recorders become waits, and waits become the ranks that everybody waits for.

A wait is one operation that some ranks have begun and others have not, or have begun as another operation. Ranks
point to what they wait in, that points to who has to come. Where the arrows end stands the cause: a rank without an
arrow of its own, or ranks that wait for one another in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from distdbg.diagnosis.timeline.device import OpenOperation
from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.first_calls import find_first_calls
from distdbg.diagnosis.waits.nccl_counts import launched_less
from distdbg.diagnosis.waits.transfers import OpenTransfer, device_transfer, open_transfer
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks.threads import Frame


@dataclass(frozen=True)
class Wait:
    """`awaited` are the ranks that have to come before `waiting` can go on; `since` in epoch seconds.

    `group` and `sequence` are the recorder's, empty and None where it was not asked. `other` of the awaited have come
    with another operation, the rest not at all. `either`: it may wait for one of several alone, nobody knows which.
    """

    what: str
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]
    other: tuple[int, ...] = ()
    group: str = ""
    sequence: int | None = None
    since: float | None = None
    either: bool = False
    #: from the stacks alone: no recorder says in which group the operation is, and who takes part in it
    by_stacks: bool = False
    #: who is awaited is known without a recorder: the other side of a transfer, everybody of the first group
    awaited_known: bool = False
    #: the devices wait, by what was enqueued; the hosts may be anywhere
    on_device: bool = False
    #: who is awaited follows from the text of the scripts: which rank sets a key of a store
    by_text: bool = False
    #: the devices of all members have started it; None where no start times are recorded
    started: bool | None = None
    #: it ends only when all awaited ranks have come, as a collective does; a receive from any rank ends with one
    needs_all: bool = False


def find_waits(
    dump: Dump,
    records: Mapping[int, RankRecord],
    standings: Mapping[int, Standing],
    known: list[Group],
    opened: Mapping[int, OpenOperation],
) -> list[Wait]:
    """The waits of all ranks that wait for others, those of the same operation together.

    `opened` says what each device waits in. That decides for its rank; the host's standing decides for the others, and
    where it waits in an operation of a host. A host that runs ahead of its device, and of which no recorder is there,
    says by its stack only that it waits: not in what, nor that it has not come to what others wait in.
    """
    collectives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    blind: dict[str, list[int]] = defaultdict(list)
    awaited_there: dict[str, set[int]] = defaultdict(set)
    ahead: list[int] = []
    forming: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    first_calls = find_first_calls(standings.keys() - opened.keys(), standings, dump, records, known)
    in_first_call = {rank for ranks in first_calls.values() for rank in ranks}
    found: list[Wait] = []
    for rank, standing in sorted(standings.items()):
        on_device = opened.get(rank) if standing.doing is not Doing.DEVICE else None
        if on_device is not None and on_device.transfers:
            found.append(_transfer(rank, device_transfer(rank, on_device.transfers, dump, opened), on_device=True))
        elif on_device is not None:
            collectives[on_device.group, on_device.sequence, on_device.signature].append(rank)
        match standing.doing:
            case Doing.COLLECTIVE if rank not in in_first_call:
                at = _open_operation(rank, standing, known, dump)
                if at is not None:
                    collectives[at].append(rank)
                elif on_device is None and (dump.runs_ahead(rank) or _uses_device(rank, known)):
                    ahead.append(rank)
                elif on_device is None:
                    blind[standing.function].append(rank)
            case Doing.TRANSFER if on_device is None:
                found.append(_transfer(rank, open_transfer(standing, dump)))
            case Doing.KEY | Doing.FILE_LOCK:
                found += _alone(standing)
            case Doing.FORMING:
                forming[standing.function, standing.members].append(rank)
    for (number, sequence, signature), ranks in collectives.items():
        unread = {*blind.get(dump.signatures[signature].operation, ()), *ahead}
        wait = _collective(known[number], (sequence, signature), tuple(ranks), dump, unread)
        if known[number].on_device:
            wait = _of_devices(wait, number, known[number], opened, standings)
            awaited_there[dump.signatures[signature].operation].update(wait.awaited)
        found.append(wait)
    found += [
        Wait(call.title, ranks, call.find_missing(ranks, dump), group=call.group, needs_all=True)
        for call, ranks in first_calls.items()
    ]
    found += _blind(blind, awaited_there, standings)
    found += _blind_on_device(ahead, standings, dump)
    found += [_forming(*made, tuple(ranks), standings, records) for made, ranks in forming.items()]
    return found


def _alone(standing: Standing) -> Iterable[Wait]:
    """Of a rank that waits for others in no operation of theirs."""
    if standing.doing is Doing.FILE_LOCK:
        yield Wait(standing.function, (standing.rank,), standing.holders, awaited_known=True)
    elif standing.peer is not None:
        yield Wait(standing.function, (standing.rank,), (standing.peer,), by_text=True)


def _open_operation(rank: int, standing: Standing, known: list[Group], dump: Dump) -> tuple[int, int, int] | None:
    """(group's index, sequence, signature) that this host waits in: the oldest that is open in the group it is in.

    Of several groups with open operations it is the one that its line has called, else the one whose newest bears the
    name of torch's function, else the one that was used last; another thread may wait in another one.
    """
    logs = {number: g.logs[rank] for number, g in enumerate(known) if rank in g.logs and not g.on_device}
    firsts = {number: first for number, log in logs.items() if (first := log.first_open) is not None}
    opened = list(firsts)
    if len(opened) > 1:
        opened = _of_its_thread(opened, known, standing, dump.ranks[rank])
    best: tuple[bool, int, tuple[int, int, int]] | None = None
    for number in opened:
        log, first = logs[number], firsts[number]
        named = standing.function.startswith(dump.signatures[log.signature[-1]].operation)
        key = (named, log.created[first])
        if best is None or key > best[:2]:
            best = (*key, (number, log.sequence[first], log.signature[first]))
    return best[2] if best else None


def _of_its_thread(opened: list[int], known: list[Group], standing: Standing, had: RankDump) -> list[int]:
    """Of groups with open operations those that the thread in question may wait in, by the lines that called them."""

    def of(name: str | None) -> list[int]:
        return [number for number in opened if ("" if known[number].default else known[number].name) == name]

    own = [t for t in had.first.threads if t.pid == had.pid and not t.main and not t.ours]
    others = (t.frames for t in own if t != had.judged(had.first))
    elsewhere = {number for frames in others for number in of(_called_in(had, frames))}
    return of(_called_in(had, standing.frames[:1])) or [n for n in opened if n not in elsewhere] or opened


def _called_in(had: RankDump, frames: Iterable[Frame]) -> str | None:
    """The group of the newest call that one of these lines has made."""
    lines = {(frame.file, frame.line) for frame in frames}
    return next((call.group for call in reversed(had.calls) if (call.file, call.line) in lines), None)


def _collective(
    group: Group, operation: tuple[int, int], waiting: tuple[int, ...], dump: Dump, unread: set[int]
) -> Wait:
    """`unread` are ranks without a recorder that wait in the same function: those may well have come."""
    sequence, signature = operation
    late: list[int] = []
    other: list[int] = []
    here = set(waiting)
    since = None
    for rank in group.ranks:
        log = group.logs.get(rank)
        if log is None:  # nobody could ask it: it may be the one
            if rank not in here and rank not in unread:
                late.append(rank)
            continue
        at = log.index(sequence)
        if at is None and log.last < sequence:
            late.append(rank)
        elif at is not None and log.signature[at] != signature:
            other.append(rank)
        elif at is not None and rank in here:
            since = max(since or 0, log.created[at])
    what = f"{dump.signatures[signature]} (number {sequence} in {group.title})"
    awaited = tuple(sorted((*late, *other)))
    when = since / 1e9 if since else None
    return Wait(what, waiting, awaited, tuple(sorted(other)), group.name, sequence, when, needs_all=True)


def _of_devices(
    wait: Wait, number: int, group: Group, opened: Mapping[int, OpenOperation], standings: Mapping[int, Standing]
) -> Wait:
    """The same where devices wait: also for a member whose host has come and whose device has not.

    Its device is stuck, or is still in an older operation. The latter is only looked at where every host has come.
    """
    sequence = wait.sequence or 0
    stuck = [
        rank
        for rank in group.ranks
        if rank in standings and standings[rank].doing is Doing.DEVICE and rank in opened
        and opened[rank].group == number and opened[rank].sequence <= sequence
    ]  # fmt: skip
    awaited = {*wait.awaited, *stuck}
    if not awaited:
        awaited = {rank for rank in set(group.ranks).difference(wait.waiting) if _not_completed(group, rank, sequence)}
    flags = {opened[rank].started for rank in wait.waiting if rank in opened}
    started = None if None in flags else flags == {True}
    return replace(wait, awaited=tuple(sorted(awaited)), on_device=True, started=started)


def _not_completed(group: Group, rank: int, sequence: int) -> bool:
    log = group.logs.get(rank)
    at = log.index(sequence) if log is not None else None
    return log is not None and at is not None and not log.done[at]


def _blind(
    blind: Mapping[str, list[int]], awaited_there: Mapping[str, set[int]], standings: Mapping[int, Standing]
) -> Iterable[Wait]:
    """No recorder says who takes part: everybody who stands elsewhere may be awaited. Not who waits in the same
    function, by its recorder: that one has come. A rank that devices wait for in that very function waits for none
    of them.
    """
    for function, ranks in blind.items():
        here = (Doing.COLLECTIVE, function)
        come = {rank for rank, standing in standings.items() if (standing.doing, standing.function) == here}
        waiting = tuple(rank for rank in ranks if rank not in awaited_there.get(function, ()))
        if waiting:
            awaited = tuple(sorted(standings.keys() - come))
            yield Wait(f"{function}, by the stacks alone", waiting, awaited, by_stacks=True, needs_all=True)


def _uses_device(rank: int, known: Iterable[Group]) -> bool:
    """No recorder of its own; but those of others have it in a group whose operations run on devices."""
    return any(group.on_device and rank in group.ranks and rank not in group.logs for group in known)


def _blind_on_device(ahead: Iterable[int], standings: Mapping[int, Standing], dump: Dump) -> Iterable[Wait]:
    """By NCCL's own count those who launched less are awaited, wherever the hosts are. Where all launched the same, a
    device is at fault, or an operation that NCCL does not count: nobody is awaited. Without a count the hosts that wait
    for their devices wait for those that do something else."""
    counted = launched_less(dump)
    late = {rank for one in counted or () for rank in one.ranks}
    waiting = {rank for rank in standings if dump.runs_ahead(rank)} - late if late else set(ahead)
    if counted is None:
        late = {r for r, s in standings.items() if not s.doing.waits_for_ranks and s.doing is not Doing.UNKNOWN}
    if waiting:
        what = "an operation on their devices" if len(waiting) > 1 else "an operation on its device"
        awaited = tuple(sorted(late))
        known = counted is not None
        yield Wait(
            what, tuple(sorted(waiting)), awaited, by_stacks=not known, awaited_known=known, on_device=True,
            needs_all=True,
        )  # fmt: skip


def _transfer(rank: int, open_: OpenTransfer, *, on_device: bool = False) -> Wait:
    return Wait(
        open_.what, (rank,), open_.awaited, since=open_.since, either=open_.either, awaited_known=True,
        on_device=on_device,
    )  # fmt: skip


def _forming(
    function: str,
    members: tuple[int, ...],
    waiting: tuple[int, ...],
    standings: Mapping[int, Standing],
    records: Mapping[int, RankRecord],
) -> Wait:
    """A process group is connected by its members; where they are not known, by everybody."""
    come = {
        rank
        for rank, standing in standings.items()
        if (standing.doing, standing.function) == (Doing.FORMING, function)
        and (not members or standing.members in ((), members))
    }
    if function == "init_process_group":
        come |= {rank for rank in standings if _formed(records.get(rank))}
    awaited = (set(members) & standings.keys() if members else standings.keys()) - come
    known = function == "init_process_group"
    return Wait(function, waiting, tuple(sorted(awaited)), awaited_known=known, needs_all=True)


def _formed(record: RankRecord | None) -> bool:
    return record is not None and record.initialised
