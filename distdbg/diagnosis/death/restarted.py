"""Earlier attempts of the same run ended, and the ranks were started again."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Citation, Finding
from distdbg.wording import name_ranks

_HOW = {"failed": "failed", "hung": "hung", "cancelled": "was cancelled", "succeeded": "succeeded",
        "unknown": "ended in an unknown way"}  # fmt: skip


@rule("restarted")
def restarted(evidence: RunEvidence) -> Iterable[Finding]:
    for earlier in evidence.earlier_attempts:
        report = build_report(earlier)
        root = next((f for f in report.verdict if f.cause_class < CauseClass.OBSERVATION), None)
        failed = [rank for rank in earlier.ranks if rank.exit_code]
        if root is None and not failed and report.outcome != "cancelled":
            continue
        because = (
            f" ({root.summary})" if root is not None else f" ({report.exit_code_of})" if report.exit_code_of else ""
        )
        quoted = [rank for rank in failed if root is None or rank.rank in root.ranks][:3]
        yield build_finding(
            "restarted",
            confidence="certain",
            summary=f"attempt {earlier.attempt} {_HOW[report.outcome or 'unknown']}{because} and the ranks were "
            "started again",
            cause=f"{name_ranks([r.rank for r in failed]).capitalize()} of attempt "
            f"{earlier.attempt} did not end with exit code 0." if failed else "",
            remedy=f"`distdbg report --attempt {earlier.attempt}` gives the verdict on it.",
            ranks=root.ranks if root is not None else tuple(rank.rank for rank in failed),
            nodes=root.nodes if root is not None else (),
            evidence=tuple(Citation(r.exit_path, None, quote=f'"exit_code": {r.exit_code}') for r in quoted)
            or (root.evidence[:3] if root is not None else ()),
            first_seen=min((r.ended for r in earlier.ranks if r.ended is not None), default=None),
        )  # fmt: skip
