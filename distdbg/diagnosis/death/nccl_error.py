"""NCCL reported an error: with its own warning, where it wrote one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.findings import finding, groups, hosts, who
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.logs.watchdog import nccl_error
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.findings import entries
from distdbg.model import CauseClass, Citation, Finding

DOCS = entries("nccl-error")
_WARNING = re.compile(r"^.*NCCL WARN (.+)$", re.MULTILINE)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "nccl-error"):
        base = finding(evidence, group)
        warnings = [c for c in (_warning(f.rank) for f in group[:8]) if c is not None]
        cause = base.cause
        if warnings:
            cause += f" NCCL's own words: {warnings[0].where}."
        yield replace(base, cause=cause, evidence=(*base.evidence, *warnings[:2]))
    yield from _versions(evidence)
    yield from _while_it_hangs(evidence)


def _while_it_hangs(evidence: RunEvidence) -> Iterable[Finding]:
    """The watchdog of a living rank reports an error of NCCL at once, and ends the process a minute later.

    Silent where a host, a circle or a mismatch explains the hang: the error can be a consequence of those.
    """
    hang = hang_of(evidence)
    if hang is None or not hang.stands or hang.circles or hang.mismatch is not None:
        return
    told = [(rank, error) for rank in evidence.ranks if (error := nccl_error(rank.stderr_tail)) is not None]
    if not told or any(culprit.waits for culprit in hang.culprits):
        return
    ranks = tuple(sorted(rank.rank for rank, _ in told))
    cited = []
    for rank, error in told[:3]:
        line = rank.stderr_first_line + error.line - 1 if rank.stderr_first_line else None
        cited.append(Citation(rank.stderr_path, line, f"rank {rank.rank}", error.message))
    yield Finding(
        id="nccl-error",
        severity="error",
        confidence="likely" if len(ranks) == 1 else "possible",
        summary=f"NCCL reported an error on {who(evidence, ranks)}, and the job waits: {cited[0].quote}",
        cause="" if len(ranks) == 1 else "Which of them had it first is not known.",
        remedy=DOCS[0].remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        evidence=tuple(cited),
        cause_class=CauseClass.STUCK,
        first_seen=hang.dump.t or None,
        side="device",
    )


def _versions(evidence: RunEvidence) -> Iterable[Finding]:
    """NCCL refuses to connect two versions, and says so on one rank only."""
    refused = next((r for r in evidence.ranks if r.nccl is not None and r.nccl.mismatched is not None), None)
    if refused is None or refused.nccl is None or refused.nccl.mismatched is None:
        return
    one, its, other, others, line = refused.nccl.mismatched
    yield Finding(
        id="nccl-error",
        severity="error",
        confidence="certain",
        summary=f"rank {one} runs NCCL {its} and rank {other} NCCL {others}: they do not connect",
        cause="NCCL itself has noticed, and refuses.",
        remedy="Install one build of torch (which brings NCCL) on all nodes; look for an LD_LIBRARY_PATH or LD_PRELOAD "
        "that differs between them.",
        ranks=tuple(sorted((one, other))),
        nodes=hosts(evidence, (one, other)),
        evidence=(Citation(refused.nccl_path, line or None, f"rank {refused.rank}"),),
        cause_class=CauseClass.UNCAUGHT_ERROR,
    )


def _warning(rank: RankRecord) -> Citation | None:
    found = list(_WARNING.finditer(rank.nccl_tail))
    if not found:
        return None
    return Citation(rank.nccl_path, None, found[-1][1].strip()[:300], found[-1][0].strip()[:500])
