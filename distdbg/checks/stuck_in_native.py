"""A rank is inside C code that does not return, while the others wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="stuck-in-native",
        severity="error",
        title="a rank is inside native code that does not return",
        meaning="A call into a C library blocks or computes without end. Where it keeps the GIL, no other Python "
        "thread of that process can run either: signal handlers, loggers and watchdogs written in Python are "
        "silent.",
        how_seen="The stack ends in a call that is no communication; the process waits in a system call that Python "
        "itself does not use here, or burns CPU at one place in both looks.",
        remedy="`distdbg hang-dump --native` shows the C frames. Regular expressions that backtrack, tokenizers, "
        "image codecs and locks taken before a fork are the usual ones.",
        source="https://docs.python.org/3/c-api/init.html#thread-state-and-the-global-interpreter-lock",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "stuck-in-native", (Doing.NATIVE,), DOCS[0].remedy)
