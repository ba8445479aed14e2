"""DDP sends large buffers to all ranks before each forward."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import Seen, is_dear, of_place, same_places
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("buffers-broadcast")
_FEWEST = 250_000


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in same_places(evidence, "buffers"):
        if _numbers(group[0]) < _FEWEST or not all(is_dear(s.profile, s.dear.us) for s in group):
            continue
        if len(group) < len(evidence.profiles):
            continue
        least = min(group, key=lambda s: s.dear.us)
        ordered = [least, *(s for s in group if s is not least)]
        numbers = _numbers(least) / 1e6
        yield of_place(
            evidence,
            DOCS[0],
            ordered,
            f"{least.dear.where} waits in each forward until DDP has sent {numbers:.1f} million numbers of buffers",
        )


def _numbers(seen: Seen) -> int:
    return int(seen.dear.what or 0)
