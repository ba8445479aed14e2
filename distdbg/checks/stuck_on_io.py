"""A rank waits for a file, a socket, a file lock, a terminal or a child process."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="stuck-on-io",
        severity="error",
        title="a rank waits for a file, a socket, a lock file or a child process",
        meaning="The rank is in a system call that waits for the world outside: a server that does not answer, a pipe "
        "that nobody reads, a lock file that another process holds, a command that does not end, a disk that "
        "hangs (state D).",
        how_seen="/proc shows the system call and what it is about (the file, the socket's other end, who holds the "
        "lock); the stack shows the line.",
        remedy="Look at what is named: is the server up, the file system there, the other process alive? Give "
        "network calls a timeout, and do such work before the ranks need one another.",
        source="https://man7.org/linux/man-pages/man5/proc.5.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "stuck-on-io", (Doing.IO,), DOCS[0].remedy)
