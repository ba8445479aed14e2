"""A rank's process is stopped: by SIGSTOP, a debugger, or the batch system."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="process-stopped",
        severity="error",
        title="a rank's process is stopped",
        meaning="The kernel has stopped the process (state T): SIGSTOP, Ctrl-Z, a debugger that is attached, a "
        "scheduler that suspends jobs. It will stand until somebody sends SIGCONT.",
        how_seen="The state in /proc is T or t in both looks.",
        remedy="`kill -CONT PID` lets it go on. See who stopped it: a debugger (TracerPid in /proc/PID/status), "
        "`scontrol suspend`, a shell's job control.",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "process-stopped", (Doing.STOPPED,), DOCS[0].remedy)
