"""The script had finished; then the interpreter's end aborted. Noise with an exit code, no failed training."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import citations, who
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.exit_status import signal_name
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding


@rule("abort-at-exit", of_failures=True)
def abort_at_exit(evidence: RunEvidence) -> Iterable[Finding]:
    every = failures(evidence)
    found = [f for f in every if f.kind == "abort-at-exit"]
    if not found:
        return
    lead = found[0]
    ranks = tuple(f.rank.rank for f in found)
    cut_off = [r.rank for r in evidence.ranks if not r.script_finished and r.exit_code != 0]
    # Where others had a failure of their own, that tells why they did not finish; this is noise then, too.
    harmed = bool(cut_off) and len(every) == len(found)
    summary = f"{who(evidence, ranks)} finished the script and then aborted ({signal_name(lead.signal or 0)}) at exit"
    if harmed:
        cause = f"torchrun then ended {who(evidence, tuple(cut_off))}, which had not finished."
    elif cut_off:
        cause = f"{who(evidence, tuple(cut_off))} did not finish, for a reason of their own."
    else:
        summary += ": no failure of the training"
        cause = "Every rank's script had finished: the training is complete."
    yield build_finding(
        "abort-at-exit",
        severity="error" if harmed else "warning",
        confidence=lead.confidence,
        summary=summary,
        cause=cause,
        ranks=ranks,
        step=lead.rank.step,
        evidence=citations(found),
        cause_class=CauseClass.KILLED_OR_OOM if harmed else CauseClass.OBSERVATION,
        first_seen=lead.t,
    )
