"""Earlier attempts of the same run failed and torchrun started the ranks again."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.of_ranks import failure_of, weighed
from distdbg.diagnosis.rules import rule
from distdbg.evidence.exit_status import how_it_ended
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding, fold_ranks


@rule("restarted")
def restarted(evidence: RunEvidence) -> Iterable[Finding]:
    for attempt, ranks in sorted(evidence.earlier_attempts.items()):
        if not ranks:
            continue
        own = weighed([failure for rank in ranks if (failure := failure_of(rank)) is not None])
        first = min(own, key=lambda failure: (failure.cause_class, failure.t or 0.0), default=None)
        if first is None:
            told, which = "its ranks were stopped", ranks
        else:
            told, which = f"rank {first.rank.rank}: {first.headline[:200] or _how(first.rank)}", (first.rank,)
        yield Finding(
            id="restarted",
            severity="warning",
            confidence="certain",
            summary=f"attempt {attempt} failed ({told}) and the ranks were started again",
            cause=f"Ranks {fold_ranks(r.rank for r in ranks)} of attempt {attempt} did not end with exit code 0.",
            remedy=f"`distdbg report --attempt {attempt}` gives the verdict on it.",
            ranks=tuple(r.rank for r in which),
            evidence=tuple(Citation(r.exit_path, None, quote=f'"exit_code": {r.exit_code}') for r in which[:3]),
            first_seen=min((r.ended for r in ranks if r.ended is not None), default=None),
        )


def _how(rank: RankRecord) -> str:
    return "exit code unknown" if rank.exit_code is None else how_it_ended(rank.exit_code)
