"""A model is sharded in one piece: every rank gathers all of it for each forward and backward."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("fsdp-single-unit")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    largest, total = fields.get("largest"), fields.get("total")
    return (
        f"FSDP gathers {largest} of {total} parameters at once for the forward at {place(found[0])}",
        f"It has {fields.get('units')} unit(s), and {fields.get('layers')} layers of the kind {fields.get('layer')} "
        "that could be one each.",
    )
