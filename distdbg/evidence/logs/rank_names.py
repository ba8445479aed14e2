"""Which rank a file is of, by its name: `nccl_trace_rank_3`, `host7_12`, `rank5.json`, `attempt_0/3/stderr.log`."""

from __future__ import annotations

import re
from collections.abc import Collection

from distdbg.model import MOST_RANKS

_SAYS_RANK = re.compile(r"rank[_.\-]?(\d{1,7})(?!\d)", re.IGNORECASE | re.ASCII)
#: `host-7` ends in 7; `rank_-1` ends in a number below zero, which is no rank.
_ENDS = re.compile(r"(?:^|(?<=[^_.=-])-|[^0-9.-])(\d{1,7})$", re.ASCII)
_SUFFIXES = re.compile(r"\.(?:json|txt|text|pickle|pkl|log|dump|trace|err|out|bin|pyspy|stack|stacks)$", re.IGNORECASE)
_LOOK = re.compile(r"\.\d{1,2}$")
_TORCHRUN = re.compile(r"(?:^|/)attempt_\d+/(\d{1,7})/(?:stdout|stderr)\.log$")
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
    for pattern in (_TORCHRUN, _OURS):
        if found := pattern.search(path):
            return _plausible(found[1])
    said = _SAYS_RANK.findall(path.rpartition("/")[2])
    return _plausible(said[-1]) if said else None


def _plausible(digits: str) -> int | None:
    rank = int(digits)
    return rank if rank < MOST_RANKS else None


def _stem(path: str) -> str:
    """Without endings; `rank3.2.json` and `x_3.1.txt` are the second and first look at rank 3."""
    name = path.rpartition("/")[2]
    while (shorter := _SUFFIXES.sub("", name)) != name:
        name = shorter
    return _LOOK.sub("", name) if re.search(r"\d\.\d{1,2}$", name) else name
