"""A tensor that is not contiguous is laid out anew, again and again, for a real share of each step."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import is_dear, of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("non-contiguous-hot")
_SHARE = 0.10


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "copy", lambda seen: is_dear(seen.profile, seen.dear.gain_us, _SHARE)):
        dear = group[0].dear
        summary = f"{dear.where} copies tensors only to lay them out otherwise, {times(dear.calls)}"
        yield of_place(evidence, DOCS[0], group, summary)
