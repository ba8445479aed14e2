"""Rank failures become findings: the same failure on many ranks is one finding that says so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.finding import build_finding
from distdbg.evidence.exit_status import signal_name
from distdbg.evidence.run import UNKNOWN_RANK, RunEvidence
from distdbg.model import CauseClass, Citation, Finding, fold_ranks, grouped

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
#: Longer lists of ranks are counted instead.
_MOST_NAMED = 40
#: Beside the first rank's own evidence, so many others are cited.
_MOST_CITED = 3


def failure_findings(evidence: RunEvidence, finding_id: str) -> list[Finding]:
    """A finding for each distinct failure that has this id."""
    return [
        failure_finding(evidence, group) for group in groups(f for f in failures(evidence) if f.finding == finding_id)
    ]


def groups(found: Iterable[RankFailure]) -> list[list[RankFailure]]:
    """The same failure on several ranks together; in each group the one nearest to the root, then the first, leads."""
    same = grouped((_sameness(failure), failure) for failure in sorted(found, key=_nearest))
    return list(same.values())


def _nearest(failure: RankFailure) -> tuple[int, float, int]:
    return int(failure.cause_class), failure.t or float("inf"), failure.rank.rank


def _sameness(failure: RankFailure) -> tuple[str, ...]:
    if failure.known is not None and failure.known.communication:
        return (failure.known.id,)
    where = f"{failure.where.file}:{failure.where.line}" if failure.where else ""
    return failure.kind, str(failure.signal), where, _NUMBERS.sub("#", failure.headline)


def failure_finding(evidence: RunEvidence, group: list[RankFailure]) -> Finding:
    """One finding for a group, told from its leader."""
    lead = group[0]
    ranks = _known_ranks(group)
    return build_finding(
        lead.finding,
        severity="error",
        confidence="possible" if lead.read_no_value else lead.confidence,
        summary=_summary(lead, who_failed(evidence, group), one=len(ranks) <= 1),
        cause=_cause(lead),
        remedy=_remedy(lead),
        ranks=ranks,
        nodes=() if ranks else tuple(dict.fromkeys(f.rank.host for f in group if f.rank.host)),
        step=lead.rank.step,
        evidence=citations(group),
        cause_class=lead.cause_class,
        first_seen=lead.t,
    )


def citations(group: list[RankFailure]) -> tuple[Citation, ...]:
    cited = [f.citation for f in group[: 1 + _MOST_CITED] if f.citation is not None]
    lead, others = cited[:1], cited[1:]
    return (*lead, *(Citation(c.path, c.line, c.where) for c in others))


def _known_ranks(group: list[RankFailure]) -> tuple[int, ...]:
    return tuple(sorted(f.rank.rank for f in group if f.rank.rank != UNKNOWN_RANK))


def who_failed(evidence: RunEvidence, group: list[RankFailure]) -> str:
    """As `who`; where no line says the rank, what else is known: `rank unknown, host node7`."""
    if ranks := _known_ranks(group):
        return who(evidence, ranks)
    places = list(dict.fromkeys(f.rank.place for f in group if f.rank.place))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"rank unknown, {' and '.join(places[:3])}{more}" if places else "rank unknown"


def who(evidence: RunEvidence, ranks: tuple[int, ...]) -> str:
    """Return `rank 3`, `ranks 0-2`, `128 ranks (3,11,19,…)`; `both ranks` or `all 8 ranks` if the job has no others."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) == evidence.world_size and evidence.has_all_ranks:
        return "both ranks" if len(ranks) == 2 else f"all {len(ranks)} ranks"
    folded = fold_ranks(ranks)
    if len(folded) <= _MOST_NAMED:
        return f"ranks {folded}"
    return f"{len(ranks)} ranks ({folded[:_MOST_NAMED].rpartition(',')[0]},…)"


def _summary(lead: RankFailure, ranks: str, *, one: bool) -> str:
    at = f" at {lead.where}" if lead.where else ""
    if lead.kind == "line":
        said = lead.known.symptom.rstrip(".") if lead.known is not None else lead.headline
        return f"{ranks}: {said}" if lead.rank.place or lead.rank.rank != UNKNOWN_RANK else said
    if lead.kind == "exit":
        return f"{ranks} ended with {lead.message}{at} and left no traceback"
    if lead.cause_class is CauseClass.EXCEPTION_IN_FLIGHT:
        were = "was" if one else "were"
        return f"{ranks} raised {lead.headline}{at} and {were} still handling it when the others failed"
    if lead.signal is not None and not lead.type:
        return f"{ranks} aborted ({signal_name(lead.signal)}) after: {lead.headline}"
    if lead.cause_class is CauseClass.COMMUNICATION and lead.known is not None:
        return f"{ranks} failed in communication{at}: {lead.known.symptom.rstrip('.')}"
    same = "" if one else " the same"
    return f"{ranks} raised{same} {lead.headline}{at}"


def _cause(lead: RankFailure) -> str:
    words = []
    if lead.known is not None:
        words.append(f"{lead.known.symptom} {lead.known.cause} [{lead.known.id}]")
    elif lead.cause_class is CauseClass.COMMUNICATION:
        words.append("A peer or the network went away; this rank only noticed.")
    elif lead.where is not None and lead.where.source:
        words.append(f"{lead.where} is: {lead.where.source}")
    if lead.course:
        words.append(lead.course)
    if lead.doubt:
        words.append(f"Not certain: {lead.doubt}.")
    if lead.read_no_value:
        words.append("The line reads a value of a simulated device, which has computed none.")
    return " ".join(words)


def _remedy(lead: RankFailure) -> str:
    if lead.known is not None:
        return lead.known.fix
    if lead.cause_class is CauseClass.COMMUNICATION:
        return "Look at the rank that ended first, and at the network between the nodes where none did."
    if lead.kind == "exit":
        below = "; its last lines are below" if lead.citation and lead.citation.quote else ""
        if lead.where is not None:
            return f"Look why {lead.where.file}:{lead.where.line} was reached{below}."
        return f"Look for a library that ends the process{below}."
    if lead.read_no_value:
        return "Rehearse it with --values and a small model: then the line reads a computed value."
    place = f"{lead.where.file}:{lead.where.line}" if lead.where else "the last line of the traceback"
    return f"Mend {place}; the whole traceback is in {lead.citation.path if lead.citation else 'the log'}."
