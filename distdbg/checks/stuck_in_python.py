"""A rank sleeps or loops in Python code of its own while the others wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="stuck-in-python",
        severity="error",
        title="a rank is held up in its own Python code",
        meaning="A rank sleeps, polls or computes in a line of the script or of a library, while its peers wait for "
        "it in a collective. They are healthy: whatever times out later names one of them.",
        how_seen="The rank's stack ends in Python code and not in a communication; its process sleeps, or burns CPU "
        "between two looks; and the flight recorders show that it never came to the operation that its peers "
        "wait in.",
        remedy="Look at the line that is named: what it waits for or counts to does not come. Give retries an end, "
        "and let every rank learn of it (a flag that is all-reduced) when one gives up.",
        source="https://github.com/pytorch/pytorch/issues/122694",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "stuck-in-python", (Doing.PYTHON,), DOCS[0].remedy)
