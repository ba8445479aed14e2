"""What NCCL's own counts (RAS) say of the ranks of a dump: who launched less, who is out of reach, who went on."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.nccl_ras import Communicator, behind, unreachable
from distdbg.model import grouped


@dataclass(frozen=True)
class LaunchedLess:
    """Ranks that others wait for: `because` is a predicate of them, `where` names the place in NCCL's answer."""

    ranks: tuple[int, ...]
    because: str
    where: str


def launched_less(dump: Dump) -> tuple[LaunchedLess, ...] | None:
    """Processes that NCCL does not reach come first: nobody knows what they have launched.

    Empty where all have launched the same. None where NCCL was not heard, where it counted nothing (sends and receives
    are not counted), or where two nodes have a process of one number.
    """
    rank_of = {had.pid: rank for rank, had in dump.ranks.items()}
    counted = any(any(rank.launched.values()) for one in dump.communicators for rank in one.ranks)
    if not counted or len(rank_of) < len(dump.ranks):
        return None
    found: list[tuple[tuple[int, ...], str, str]] = [
        ((pid,), why, "missing_ranks") for pid, why in unreachable(dump.communicators).items()
    ]
    for late in () if found else behind(dump.communicators):
        because = (
            f"has launched {late.operation} {late.count} times in a communicator of {late.communicator.size} ranks, "
            f"where others have done so {late.most} times"
        )
        found.append((late.pids, because, f"communicator {late.communicator.name}"))
    known = ((tuple(sorted(rank_of[pid] for pid in pids if pid in rank_of)), why, where) for pids, why, where in found)
    return tuple(LaunchedLess(ranks, why, where) for ranks, why, where in known if ranks)


def went_on(dump: Dump) -> set[int]:
    """Processes, by pid, that launched an operation between the first look and the last."""
    before = _launched(dump.communicators_before)
    return {pid for pid, counts in _launched(dump.communicators).items() if before.get(pid, counts) != counts}


def _launched(communicators: tuple[Communicator, ...]) -> dict[int, list[tuple[str, dict[str, int]]]]:
    in_order = sorted(communicators, key=lambda one: one.name)
    return grouped((rank.pid, (one.name, dict(rank.launched))) for one in in_order for rank in one.ranks)
