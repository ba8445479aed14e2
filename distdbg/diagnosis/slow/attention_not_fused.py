"""scaled_dot_product_attention computes the whole matrix of scores where a fused kernel would do."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("attention-not-fused")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "attention", lambda seen: seen.dear.fused != ""):
        dear = group[0].dear
        path = f"the {dear.fused} kernel" if dear.fused else "a fused kernel perhaps"
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} runs attention on the math path {times(dear.calls)}, where {path} would do",
            "A fused kernel is not free either: the gain is a part of it. The backward comes on top.",
            confidence="likely" if dear.fused else "possible",
        )
