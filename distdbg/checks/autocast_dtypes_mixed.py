"""Autocast to one sixteen-bit type inside autocast to the other."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="autocast-dtypes-mixed",
        severity="info",
        title="autocast to float16 and to bfloat16, one inside the other",
        meaning="The inner region computes in another type than the outer one: what passes between them is rounded "
        "twice, and what bfloat16 can hold may be infinite in float16. The inner one is often a default that was "
        "forgotten: autocast without a dtype means float16 on a GPU.",
        how_seen="A guard sees the script enter a region, with gradients on, while one to the other type is in force "
        "on the same kind of device; three times at one line. Who opened the outer one does not matter.",
        remedy="Give both the same dtype, or leave the inner one out.",
        source="https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    inner, outer = found[0].fields.get("inner"), found[0].fields.get("outer")
    return (
        f"{place(found[0])} computes in {inner} inside of autocast to {outer}",
        f"What passes between the two is rounded to {inner} and to {outer}.",
    )
