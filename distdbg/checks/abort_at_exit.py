"""The script had finished; then the interpreter's end aborted. Noise with an exit code, no failed training."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import citations, hosts, who
from distdbg.evidence.exit_status import signal_name
from distdbg.evidence.failure import failures
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="abort-at-exit",
        severity="warning",
        title="a rank aborted after its script had finished",
        meaning="The script ran to its end; afterwards, while the interpreter took its objects apart, native code "
        "aborted. A thread of gloo's does so on a busy machine (`terminate called without an active exception`): it "
        "frees the last collective when the interpreter is ending already. The training is complete, but the process "
        "has a bad exit code, and so has the job.",
        how_seen="The worker side saw the script's end before the signal; standard error holds the last words.",
        remedy="Before init_process_group(): import torch.distributed.nn.functional, whose functions otherwise keep "
        "the group for ever (DDP imports it). At the end: delete the DDP model and the optimizers, gc.collect(), then "
        "torch.distributed.destroy_process_group(), which now waits for gloo's threads.",
        source="https://github.com/pytorch/pytorch/issues/190489",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
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
    yield Finding(
        id="abort-at-exit",
        severity="error" if harmed else "warning",
        confidence=lead.confidence,
        summary=summary,
        cause=cause,
        remedy=DOCS[0].remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        step=lead.rank.step,
        evidence=citations(found),
        cause_class=CauseClass.KILLED_OR_OOM if harmed else CauseClass.OBSERVATION,
        first_seen=lead.t,
    )
