"""What is known of a hang whose cause is not: so that nobody is named, and nothing is kept back."""

from __future__ import annotations

from distdbg.diagnosis.timeline.liveness import QUIET_S
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Unknown
from distdbg.protocol.launcher_events import DumpTaken
from distdbg.wording import name_ranks, plural

_MOST_PLACES = 6
_WHAT = "why the job stands still"
_RECORDERS = "their flight recorders (TORCH_FR_BUFFER_SIZE=2000 and, before torch 2.15, TORCH_NCCL_DUMP_ON_TIMEOUT=1)"

#: Of a collective that timed out, where one rank's watchdog alone says so.
MISSING_RANK = Unknown(
    "for which rank the others waited",
    f"a collective timed out, and no line says who was missing: collect the logs of all ranks, and {_RECORDERS}",
    decisive=True,
)


def _dump_failures(evidence: RunEvidence) -> str:
    """The nodes' reasons for an empty dump, as the launcher recorded them."""
    dump = DumpTaken.newest(evidence.events)
    reasons = dump.because if dump is not None and isinstance(dump.because, list) else []
    return f" ({'; '.join(map(str, reasons[:_MOST_PLACES]))})" if reasons else ""


def undecided(evidence: RunEvidence, *, hung: bool) -> Unknown | None:
    """For a job of which no check has found why it stands still; `hung` where its launcher saw that it does."""
    hang = hang_of(evidence)
    if hang is None:
        return _unknown(f"nothing of its ranks was collected while it did{_dump_failures(evidence)}") if hung else None
    if not hang.stands:
        why = f"{name_ranks(hang.moved)} went on while it was looked at" if hang.moved else "it was heard of meanwhile"
        return _unknown(why) if hung else Unknown("whether it hangs", _why_not_seen(hang))
    if hang.starting:
        return None  # it waits for nothing that is known to be missing
    if not hung and _knows_no_place(hang):
        return Unknown("whether the job stands still", places(hang), decisive=True)
    blind = any(map(hang.dump.runs_ahead, hang.dump.ranks))
    return (
        _unknown(f"{_wrong_size(evidence, hang) or _why(hang)}: {places(hang)}")
        if hang.waits or hung or blind
        else None
    )


def _why_not_seen(hang: Hang) -> str:
    """Why looks at a job that runs do not show whether it hangs."""
    if hang.moved:
        return f"{name_ranks(hang.moved)} went on between the looks (`hang-dump --looks 5 --interval 5` looks longer)"
    if hang.life:
        return f"{hang.life}: that is work and no hang yet, ask again"
    return f"a rank made progress {hang.quiet_s or 0.0:.0f} s before: ask again, it takes {QUIET_S:.0f} s without"


def _knows_no_place(hang: Hang) -> bool:
    """Whether stacks were read, and none shows what its rank does."""
    read = [hang.standings[rank] for rank, had in hang.dump.ranks.items() if had.first.threads]
    return bool(read) and all(standing.doing is Doing.UNKNOWN for standing in read)


def _unknown(because: str) -> Unknown:
    return Unknown(_WHAT, because, decisive=True)


def _wrong_size(evidence: RunEvidence, hang: Hang) -> str:
    """Return that ranks wait for more ranks than the job has, as with a WORLD_SIZE that a script has set."""
    sizes = {
        rank: standing.group_size
        for rank, standing in sorted(hang.standings.items())
        if standing.doing is Doing.FORMING and standing.function == "init_process_group" and standing.group_size
    }
    size = max(sizes.values(), default=0)
    if evidence.world_size is None or size <= evidence.world_size:
        return ""
    waiting = [rank for rank, told in sizes.items() if told == size]
    return (
        f"{name_ranks(waiting)} {plural('waits', waiting)} for a group of {size} ranks (WORLD_SIZE, or "
        f"world_size of init_process_group), and {evidence.world_size} were started"
    )


def _why(hang: Hang) -> str:
    if unread := _not_read(hang):
        return unread
    out_of_step = next(filter(None, (_out_of_step(hang, wait) for wait in hang.complete)), "")
    if because := out_of_step or apart_by_port(hang) or _members_not_read(hang):
        return because
    unstarted = [wait for wait in hang.complete if wait.on_device and wait.started is None]
    if unstarted:
        return (
            "every host has enqueued the operation and no device completes it, so one of the devices or the network "
            f"between them is at fault; {_records_starts(hang, unstarted)}"
        )
    if any(s.doing is Doing.TRANSFER for s in hang.standings.values()):
        return (
            "as many sends as receives were begun between the ranks that wait in them, whose tags or sizes may "
            "differ, or the network is cut"
        )
    return "no rank was found that the others wait for"


def _records_starts(hang: Hang, waits: list[Wait]) -> str:
    """What lets the recorder say which devices have started an operation."""
    names = {wait.group for wait in waits}
    comms = {group.comm for group in hang.groups if group.name in names and group.on_device}
    if comms <= {"nccl"}:
        return "`--preset hang` records which devices have started it"
    return (
        f"torch's backend {', '.join(sorted(comms))} records no starts: with TORCH_DIST_USE_NCCL2=0, which brings the "
        "older backend back, `--preset hang` records which devices have started it"
    )


def _not_read(hang: Hang) -> str:
    if hang.unread:
        return f"every rank that was read has joined, and {name_ranks(hang.unread)}, which were not read, may not have"
    unread = tuple(sorted(r for r, had in hang.dump.ranks.items() if had.recorder is None and _may_wait(hang, r)))
    return f"the flight recorder of {name_ranks(unread)}, which may wait for others, was not had" if unread else ""


def _members_not_read(hang: Hang) -> str:
    """Name a wait of which it is not known whether all members have come; empty if there is none."""
    wait = next((w for w in hang.complete if w.sequence is not None and not hang.has_all_members(w)), None)
    if wait is None:
        return ""
    return (
        f"{name_ranks(wait.waiting)} {plural('waits', wait.waiting)} in {wait.what}, and whether all other "
        f"members of the group have begun it is not known: collect the logs of all ranks, and {_RECORDERS}"
    )


def _out_of_step(hang: Hang, wait: Wait) -> str:
    """Members that have completed more than the next operation did so without a device that is still in this one."""
    group = next((group for group in hang.groups if group.name == wait.group and group.on_device), None)
    if group is None or wait.sequence is None:
        return ""
    ahead = [rank for rank, log in group.logs.items() if rank not in wait.waiting and log.completes(wait.sequence + 1)]
    if not ahead:
        return ""
    return (
        f"{name_ranks(sorted(ahead))} completed operations after number {wait.sequence} of {group.title}, in which "
        f"{name_ranks(wait.waiting)} still {plural('waits', wait.waiting)}: for them it was another operation, "
        "so the ranks are out of step, and what it was is not recorded"
    )


def apart_by_port(hang: Hang) -> str:
    """`ranks that form a group look for one another at different ports (29500, 29501): …`; empty where they do not.
    Hosts are not compared: one may have several names."""
    ports = {s.meets_at.rpartition(":")[2] for s in hang.standings.values() if s.doing is Doing.FORMING and s.meets_at}
    if len(ports) < 2:
        return ""
    told = ", ".join(sorted(ports)[:_MOST_PLACES])
    return f"ranks that form a group look for one another at different ports ({told}): see MASTER_PORT on each of them"


def _may_wait(hang: Hang, rank: int) -> bool:
    return hang.standings[rank].doing is Doing.COLLECTIVE or hang.dump.runs_ahead(rank)


def places(hang: Hang) -> str:
    """`rank 0 waits in send at train.py:7; ranks 1-3 wait in …`: where everybody stands."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, standing in sorted(hang.standings.items()):
        place = f" at {standing.frame.file.rpartition('/')[2]}:{standing.frame.line}" if standing.frame else ""
        together.setdefault((standing.phrase, place), []).append(rank)
    told = [f"{name_ranks(ranks)} {plural(phrase, ranks)}{place}" for (phrase, place), ranks in together.items()]
    more = f"; and {len(told) - _MOST_PLACES} places more" if len(told) > _MOST_PLACES else ""
    return "; ".join(told[:_MOST_PLACES]) + more
