"""Read NCCL's own report of a job (its RAS subsystem): ranks that launched less than others, or do not answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distdbg.evidence import jsonl


@dataclass(frozen=True)
class RasRank:
    """One rank of a communicator. `launched`: operations since it was made, by kind; empty where it did not answer.

    `unreachable` says why it did not answer, in NCCL's words; empty where its process answered, even if that has left
    the communicator.
    """

    rank: int
    pid: int
    host: str
    launched: Mapping[str, int] = field(default_factory=dict)
    unreachable: str = ""


@dataclass(frozen=True)
class Communicator:
    name: str
    size: int
    ranks: tuple[RasRank, ...]


@dataclass(frozen=True)
class Behind:
    """Processes that have launched `count` operations of one kind in a communicator where others have `most`."""

    communicator: Communicator
    operation: str
    pids: tuple[int, ...]
    count: int
    most: int


#: NCCL 2.28.7 to 2.28.9 leave out the comma after this field of each missing rank: src/ras/client_support.cc,
#: jsonWriteMissingRank. A report with a missing rank is the one that is needed.
_NO_COMMA = re.compile(rb'("nvml_dev": -?\d+)(\s+"status")')


def with_missing_comma(answer: bytes) -> bytes:
    """Valid JSON from the answer of NCCL 2.28; any other answer is returned as it is."""
    return _NO_COMMA.sub(rb"\1,\2", answer)


def read_ras(value: object) -> tuple[Communicator, ...]:
    """What `ncclras -f json` prints; what is not as it should be is left out."""
    found = []
    for said in jsonl.dicts(value.get("communicators") if isinstance(value, dict) else None):
        ranks = [
            rank for name in ("ranks", "missing_ranks") for one in jsonl.dicts(said.get(name)) for rank in _rank(one)
        ]
        name, size = jsonl.text(said, "hash"), jsonl.integer(said, "size")
        if name and size and ranks:
            found.append(Communicator(name, size, tuple(ranks)))
    return tuple(found)


def _rank(said: Mapping[str, Any]) -> Iterable[RasRank]:
    rank, pid, counts, status = (said.get(name) for name in ("rank", "pid", "collective_counts", "status"))
    if not isinstance(rank, int) or not isinstance(pid, int) or pid <= 0:
        return
    launched = {k: v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {}
    flags = status if isinstance(status, dict) else {}
    why = "does not answer" if flags.get("unresponsive") is True else ""
    if flags.get("considered_dead") is True:
        why = "is considered dead"
    yield RasRank(rank, pid, jsonl.text(said, "host"), launched, why)


def unreachable(communicators: Iterable[Communicator]) -> dict[int, str]:
    """Processes that NCCL does not reach, by pid, with its words."""
    ranks = (rank for one in communicators for rank in one.ranks)
    return {rank.pid: rank.unreachable for rank in ranks if rank.unreachable}


def behind(communicators: Sequence[Communicator]) -> list[Behind]:
    """Ranks that others wait for and that wait for no rank themselves.

    A rank that launched more than the last ones waits for them: it is no root, however far behind it is elsewhere.
    Without roots the ranks wait for each other, and this says nothing.
    """
    behind_others: list[Behind] = []
    waiting: set[int] = set()
    for communicator in communicators:
        counting = [rank for rank in communicator.ranks if rank.launched]
        for operation in dict.fromkeys(name for rank in counting for name in rank.launched):
            counts = {rank.pid: rank.launched.get(operation, 0) for rank in counting}
            least, most = min(counts.values()), max(counts.values())
            if least < most:
                last = tuple(pid for pid, count in counts.items() if count == least)
                waiting |= counts.keys() - set(last)
                behind_others.append(Behind(communicator, operation, last, least, most))
    roots = (replace(one, pids=tuple(pid for pid in one.pids if pid not in waiting)) for one in behind_others)
    return [one for one in roots if one.pids]
