"""Which rank a file is of, by its name: `nccl_trace_rank_3`, `host7_12`, `rank5.json`, `attempt_0/3/stderr.log`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from distdbg.model import MOST_RANKS

_SAYS_RANK = re.compile(r"rank[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE | re.ASCII)
#: `host-7` ends in 7; `rank_-1` ends in a number below zero, which is no rank.
_ENDS = re.compile(r"(?:^|(?<=[^_.=-])-|[^0-9.-])(\d{1,7})$", re.ASCII)
_SUFFIXES = re.compile(r"\.(?:json|txt|text|pickle|pkl|log|dump|trace|err|out|bin|pyspy|stack|stacks)$", re.IGNORECASE)
_LOOK = re.compile(r"\.\d{1,2}$")
_TASK = re.compile(r"^(?:[A-Za-z][\w.]*-)?\d{3,9}_(\d{1,7})\.(?:out|err|log)$", re.ASCII)
_HOST = re.compile(
    r"(?:^|[-_.])((?:[a-z]*(?:node|host|gpu|worker|dgx|cn|compute|hgx)[a-z]*[-_]?\d{1,6})(?:-\d{1,6})*)(?=[-_.])",
    re.ASCII,
)
#: torchrun --log-dir: DIR/<run id>_<random>/attempt_0/<local rank>/stderr.log
_TORCHRUN = re.compile(
    r"(?P<launcher>.*?)/?\battempt_\d+/(?P<local_rank>\d{1,7})/(?:(?:stdout|stderr)\.log|error\.json)$"
)
_OURS = re.compile(r"(?:^|/)ranks/(\d{5,7})/(?:(?:memory|profile)/)?[^/]+$")


def rank_of_name(path: str, not_these: Collection[int] = ()) -> int | None:
    """None where the name tells none. A number that ends it is the rank, but not one of `not_these` (pids).

    Where the name says "rank", a pid may be the same number: a container's first process has pid 1.
    """
    if (rank := rank_that_is_said(path)) is not None:
        return rank
    found = _ENDS.search(_stem(path))
    rank = _plausible(found[1]) if found else None
    return rank if rank not in not_these else None


def rank_that_is_said(path: str) -> int | None:
    """Only where the name says that it is a rank: a log's trailing number may be a date or a job's."""
    if found := _OURS.search(path):
        return _plausible(found[1])
    folder, _, name = path.rpartition("/")
    said = _SAYS_RANK.findall(name) or _SAYS_RANK.findall(folder.rpartition("/")[2])
    return _plausible(said[-1]) if said else None


@dataclass(frozen=True)
class NameFacts:
    """What a log's name says. `launcher` is the same for logs that one torchrun, on one node, wrote."""

    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    launcher: str = ""


def facts_of_name(path: str) -> NameFacts:
    """The number that `--log-dir` of torchrun gives is a local rank. The task of Slurm's `%j_%t` is the rank where srun
    starts each rank. `slurm-4711-node7.out` and `node7.log` name a host."""
    rank, launcher, local_rank = rank_that_is_said(path), path, None
    if found := _TORCHRUN.match(path):
        launcher, local_rank = found["launcher"], _plausible(found["local_rank"])
    elif rank is None and (task := _TASK.search(path.rpartition("/")[2])):
        rank = _plausible(task[1])
    host = _HOST.search(path.rpartition("/")[2])
    return NameFacts(rank, local_rank, host[1] if host else "", launcher)


def _plausible(digits: str) -> int | None:
    rank = int(digits)
    return rank if rank < MOST_RANKS else None


def _stem(path: str) -> str:
    """Without endings; `rank3.2.json` and `x_3.1.txt` are the second and first look at rank 3."""
    name = path.rpartition("/")[2]
    while (shorter := _SUFFIXES.sub("", name)) != name:
        name = shorter
    return _LOOK.sub("", name) if re.search(r"\d\.\d{1,2}$", name) else name
