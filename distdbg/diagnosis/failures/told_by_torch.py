"""Tell from torch's own messages which ranks an error is about that all ranks raise.

torch.distributed.checkpoint raises the error of one rank on all of them, with its traceback. FSDP compares its ranks,
and raises on all what it found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdbg.diagnosis.failures.exceptions import subject
from distdbg.diagnosis.failures.findings import citations, who
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.evidence.logs.messages import recognise
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.tracebacks import HEADER, ParsedException, last_chain
from distdbg.model import Finding
from distdbg.wording import name_ranks, plural

#: torch/distributed/checkpoint/api.py, CheckpointException
_CHECKPOINT = re.compile(rf"^{re.escape(HEADER)} \(RANK (\d{{1,9}})\)$", re.M)
#: torch/distributed/fsdp/_optim_utils.py
_STATES = re.compile(r"^Rank (\d{1,9}) is missing states for the parameters: (.{1,200})", re.M)
#: torch/distributed/fsdp/_exec_order_utils.py: the first two ranks that differ, so all before the second are alike
_ORDER = re.compile(
    r"Forward order differs across ranks: rank (\d{1,9}) is all-gathering (.{1,400}?) "
    r"while rank (\d{1,9}) is all-gathering (.{1,400}?)$",
    re.M,
)


@dataclass(frozen=True)
class _Told:
    """`ranks` have the error that `summary` says; `undecided`: which of them is not known. `error` is their own."""

    ranks: tuple[int, ...]
    summary: str
    undecided: bool = False
    error: ParsedException | None = None


def named(evidence: RunEvidence, found: Finding, group: Sequence[RankFailure]) -> Finding:
    """The finding with the ranks that torch names. As it is for other messages, and where a number is none of the ranks
    that raised: it may be one within a smaller group."""
    message = group[0].message
    told = _checkpoint(evidence, message) or _states(evidence, message) or _order(evidence, message, len(group))
    if told is None or not set(told.ranks) <= {failure.rank.rank for failure in group}:
        return found
    cause, remedy = _of_error(told.error) if told.error is not None else (found.cause, found.remedy)
    return replace(
        found,
        summary=told.summary,
        cause=f"{cause} Which of them is as meant is not known." if told.undecided else cause,
        remedy=remedy,
        ranks=told.ranks,
        nodes=(),
        evidence=citations(sorted(group, key=lambda failure: failure.rank.rank not in told.ranks)),
    )


def _checkpoint(evidence: RunEvidence, message: str) -> _Told | None:
    parts = _CHECKPOINT.split(message)
    raised: dict[int, tuple[ParsedException, ...]] = {}
    for rank, text in zip(parts[1::2], parts[2::2], strict=True):
        if chain := last_chain(HEADER + text):
            raised[int(rank)] = chain
    if not raised:
        return None
    ranks = tuple(sorted(raised))
    last = raised[ranks[0]][-1]
    first_line = subject(last).split("\n", 1)[0].strip()
    at = f" at {last.where}" if last.where is not None else ""
    passed_on = "torch.distributed.checkpoint raised it on all ranks"
    return _Told(ranks, f"{who(evidence, ranks)} raised {first_line}{at}, and {passed_on}", error=last)


def _of_error(error: ParsedException) -> tuple[str, str]:
    """Cause and remedy."""
    if (known := recognise(subject(error))) is not None:
        return f"{known.symptom} {known.cause} [{known.id}]", known.fix
    where = error.where
    if where is None:
        return "", "Look at the traceback of that rank."
    return f"{where} is: {where.source}" if where.source else "", f"Mend {where.file}:{where.line}."


def _states(evidence: RunEvidence, message: str) -> _Told | None:
    missing = dict(_STATES.findall(message))
    ranks = tuple(sorted(map(int, missing)))
    if not ranks:
        return None
    have = plural("has", ranks)
    return _Told(ranks, f"{who(evidence, ranks)} {have} no optimizer states of {next(iter(missing.values()))}")


def _order(evidence: RunEvidence, message: str, size: int) -> _Told | None:
    told = _ORDER.search(message)
    if told is None:
        return None
    first, other = int(told[1]), int(told[3])
    alike = other - first
    undecided = first != 0 or 2 * alike <= size
    others = name_ranks(range(first, other))
    gather = "gathers" if alike == 1 else "gather"
    ranks = (first, other) if undecided else (other,)
    summary = f"{who(evidence, (other,))} gathers {told[4]} in its forward, where {others} {gather} {told[2]}"
    return _Told(ranks, summary, undecided)


# -- a monitored barrier: torch names the ranks on its first rank when its time is up ---------------------------------

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
