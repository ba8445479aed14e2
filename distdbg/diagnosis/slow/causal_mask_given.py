"""Attention gets a causal mask as a tensor, where it need only be told that it is causal."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("causal-mask-given")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "masked", lambda seen: bool(seen.dear.lines)):
        dear = group[0].dear
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} gives attention a causal mask as a tensor {times(dear.calls)}, and not is_causal=True",
            "It is a half of the scores that need not be computed; the backward comes on top.",
        )
