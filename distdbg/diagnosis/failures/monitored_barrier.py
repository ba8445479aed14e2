"""Read which ranks a monitored barrier names: torch says so on its first rank when its time is up. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdbg.diagnosis.failures.record import RankFailure
from distdbg.evidence.run import RunEvidence

_ABSENT = re.compile(r"Ranks? (\d[\d, ]{0,4000}) failed to pass monitoredBarrier")


def absent_ranks(failure: RankFailure, group: Sequence[int]) -> tuple[int, ...]:
    """Those that did not come. torch counts them within `group`. Empty where it names none."""
    if (named := _ABSENT.search(failure.message)) is None:
        return ()
    numbers = (int(word) for word in re.findall(r"\d{1,9}", named[1]))
    return tuple(sorted(group[n] for n in numbers if n < len(group)))


def group_of_last_call(evidence: RunEvidence, failure: RankFailure) -> tuple[int, ...] | None:
    """The ranks of the group that it called last; None where that is not known."""
    had = evidence.dump.ranks.get(failure.rank.rank) if evidence.dump is not None else None
    if had is None or not had.calls:
        return None
    name = had.calls[-1].group
    return failure.rank.groups.get(name) if name else tuple(sorted(r.rank for r in evidence.ranks))
