"""A rank waits for another thread of its own process."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="stuck-on-lock",
        severity="error",
        title="a rank waits for a lock or a thread of its own process",
        meaning="The main thread waits for a lock, a condition, a queue, a future or the end of a thread, which does "
        "not come: two locks in opposite orders, a thread that has died, a pool that waits for itself, a "
        "notify that came too early.",
        how_seen="The stack ends in threading, queue or concurrent.futures, or the C frames show that Python waits for "
        "a lock; the process sleeps in a futex and nothing of it moves between two looks.",
        remedy="Look for the thread that should let go: the dump holds all threads' stacks. Take locks in one order, "
        "give get() and join() a timeout, and let a thread that dies say so.",
        source="https://docs.python.org/3/library/threading.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "stuck-on-lock", (Doing.LOCK,), DOCS[0].remedy)
