"""CUDA reported an error."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import findings_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="cuda-error",
        severity="error",
        title="CUDA reported an error",
        meaning="A kernel failed (an index out of range, a wrong memory access), or the driver does not fit. CUDA "
        "reports late: the Python line shown is where it was noticed.",
        how_seen="CUDA's words in the rank's exception or before its abort.",
        remedy="Run again with `--preset sync-crash`: the traceback then shows the call that failed.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return findings_of(evidence, "cuda-error")
