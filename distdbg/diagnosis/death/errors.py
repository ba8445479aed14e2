"""Ranks that an exception ended: one rule for each kind of error, from the exception and what else is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.death._children import died
from distdbg.diagnosis.death._memory import oom_rise
from distdbg.diagnosis.failures import models_differ, told_by_torch
from distdbg.diagnosis.failures.exceptions import HANDLED
from distdbg.diagnosis.failures.findings import failure_finding, failure_findings, groups, who
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import all_rules, rule
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.logs.watchdog import nccl_error as reported_nccl_error
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import CauseClass, Citation, Finding
from distdbg.protocol.agent_events import Cgroup
from distdbg.wording import plural


@rule("rank-exception", of_failures=True)
def rank_exception(evidence: RunEvidence) -> Iterable[Finding]:
    """A rank ended by an error of its own: the root rank's traceback, not the storm that followed."""
    for group in groups(f for f in failures(evidence) if f.finding == "rank-exception"):
        found = told_by_torch.named(evidence, failure_finding(evidence, group), group)
        no_rank = not found.ranks and _all_ranks_stood(evidence, found.first_seen)
        yield _of_no_rank(found) if no_rank else _handled_or_exited(evidence, found, group[0])


def _all_ranks_stood(evidence: RunEvidence, raised: float | None) -> bool:
    """The launch called the job hung, the hang is explained, and every rank lived then: no exception before had ended
    one."""
    hang = hang_of(evidence)
    if hang is None or not hang.stands or hang.dump.quiet_s is None or not (hang.culprits or hang.circles):
        return False
    if hang.dump.missing or (raised is not None and raised > hang.dump.t):
        return False
    living = {rank for rank in hang.dump.ranks if hang.standings[rank].doing is not Doing.ENDED}
    return len(living) == (hang.dump.world_size or len(evidence.ranks)) and living >= {r.rank for r in evidence.ranks}


def _of_no_rank(found: Finding) -> Finding:
    """Ray's actors, as an example, print what they handle, and share a driver's streams with the ranks."""
    return replace(
        found,
        severity="info",
        cause_class=CauseClass.OBSERVATION,
        cause=f"All ranks lived when the job stood still: a process that is no rank printed this, or a rank has "
        f"handled it. {found.cause}".rstrip(),
        remedy="Look at it where the hang's own finding explains nothing.",
    )


def _handled_or_exited(evidence: RunEvidence, found: Finding, lead: RankFailure) -> Finding:
    if lead.cause_class is CauseClass.VICTIM and lead.doubt == HANDLED:
        handled = plural("was still handling it", found.ranks)
        return replace(
            found,
            severity="info",
            cause_class=CauseClass.OBSERVATION,
            summary=f"{found.summary} and {handled} when another rank failed",
            remedy="Nothing, if the script is meant to handle it.",
        )
    if lead.kind == "exit" and lead.doubt and lead.citation is not None:
        last = lead.citation.quote.rpartition("\n")[2]
        return replace(found, summary=f"{who(evidence, found.ranks)} ended with {lead.message} after: {last}")
    return found


@rule("cuda-error", of_failures=True)
def cuda_error(evidence: RunEvidence) -> Iterable[Finding]:
    """CUDA reported an error."""
    return failure_findings(evidence, "cuda-error")


@rule("shm-exhausted", of_failures=True)
def shm_exhausted(evidence: RunEvidence) -> Iterable[Finding]:
    """Shared memory ran out."""
    return failure_findings(evidence, "shm-exhausted")


_NCCL_WARNING = re.compile(r"^.*NCCL WARN (.+)$", re.MULTILINE)


@rule("nccl-error", of_failures=True)
def nccl_error(evidence: RunEvidence) -> Iterable[Finding]:
    """NCCL reported an error: with its own warning, where it wrote one."""
    for group in groups(f for f in failures(evidence) if f.finding == "nccl-error"):
        base = failure_finding(evidence, group)
        warnings = [c for c in (_nccl_warning(f.rank) for f in group[:8]) if c is not None]
        cause = base.cause
        if warnings:
            cause += f" NCCL's own words: {warnings[0].where}."
        yield replace(base, cause=cause, evidence=(*base.evidence, *warnings[:2]))
    yield from _nccl_versions(evidence)
    yield from _nccl_while_it_hangs(evidence)


def _nccl_while_it_hangs(evidence: RunEvidence) -> Iterable[Finding]:
    """The watchdog of a living rank reports an error of NCCL at once, and ends the process a minute later.

    Silent where a host, a circle or a mismatch explains the hang, and where a rank has ended by a cause of its own: the
    error can be a consequence of those.
    """
    if any(failure.cause_class < CauseClass.STUCK for failure in failures(evidence)):
        return
    hang = hang_of(evidence)
    if hang is None or not hang.stands or hang.circles or hang.mismatch is not None:
        return
    told = [(rank, error) for rank in evidence.ranks if (error := reported_nccl_error(rank.stderr_tail)) is not None]
    if not told or any(culprit.waits for culprit in hang.culprits):
        return
    ranks = tuple(sorted(rank.rank for rank, _ in told))
    cited = []
    for rank, error in told[:3]:
        line = rank.stderr_first_line + error.line - 1 if rank.stderr_first_line else None
        cited.append(Citation(rank.stderr_path, line, f"rank {rank.rank}", error.message))
    yield build_finding(
        "nccl-error",
        confidence="likely" if len(ranks) == 1 else "possible",
        summary=f"NCCL reported an error on {who(evidence, ranks)}, and the job waits: {cited[0].quote}",
        cause="" if len(ranks) == 1 else "Which of them had it first is not known.",
        ranks=ranks,
        evidence=tuple(cited),
        cause_class=CauseClass.STUCK,
        first_seen=hang.dump.t or None,
        side="device",
    )


def _nccl_versions(evidence: RunEvidence) -> Iterable[Finding]:
    """NCCL refuses to connect two versions, and says so on one rank only."""
    refused = next((r for r in evidence.ranks if r.nccl is not None and r.nccl.mismatched is not None), None)
    if refused is None or refused.nccl is None or refused.nccl.mismatched is None:
        return
    one, its, other, others, line = refused.nccl.mismatched
    yield build_finding(
        "nccl-error",
        confidence="certain",
        summary=f"rank {one} runs NCCL {its} and rank {other} NCCL {others}: they do not connect",
        cause="NCCL itself has noticed, and refuses.",
        remedy="Install one build of torch (which brings NCCL) on all nodes; look for an LD_LIBRARY_PATH or LD_PRELOAD "
        "that differs between them.",
        ranks=tuple(sorted((one, other))),
        evidence=(Citation(refused.nccl_path, line or None, f"rank {refused.rank}"),),
        cause_class=CauseClass.UNCAUGHT_ERROR,
    )


def _nccl_warning(rank: RankRecord) -> Citation | None:
    found = list(_NCCL_WARNING.finditer(rank.nccl_tail))
    if not found:
        return None
    return Citation(rank.nccl_path, None, found[-1][1].strip(), found[-1][0].strip())


@rule("loader-worker-died", of_failures=True)
def loader_worker_died(evidence: RunEvidence) -> Iterable[Finding]:
    """A DataLoader worker died: and whether memory was the reason, where the kernel says so."""
    for group in groups(f for f in failures(evidence) if f.finding == "loader-worker-died"):
        base = failure_finding(evidence, group)
        node = evidence.node_of(group[0].rank)
        if node is not None and oom_rise(node) > 0:
            before, after = node.cgroup["oom_kill"]
            cause = (
                f"{base.cause} Memory: the kernel's count of memory kills on this node rose from {before} to {after}."
            )
            citation = Citation(node.events_path, Cgroup.last_line(node.events), "oom_kill", f"{before} -> {after}")
            base = replace(base, cause=cause, evidence=(*base.evidence, citation))
        lead = group[0]
        words, cited = died(evidence, lead.rank, f"{lead.headline} {lead.message}")
        yield replace(base, cause=f"{base.cause} {words}".strip(), evidence=(*base.evidence, *cited))


@rule()
def known_error(evidence: RunEvidence) -> Iterable[Finding]:
    """A rank died of an error whose message belongs to a finding that guards or other checks can give as well."""
    found = failures(evidence)
    decided = {doc.id for one in all_rules() if one.of_failures for doc in one.docs} if found else set()
    for group in groups(f for f in found if f.finding not in decided):
        yield models_differ.named(evidence, failure_finding(evidence, group), group)
