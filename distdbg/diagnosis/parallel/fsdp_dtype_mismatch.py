"""FSDP's mixed precision does nothing for parameters of the type that they have."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("fsdp-dtype-mismatch")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    kept, computed = fields.get("kept"), fields.get("computed")
    if fields.get("does") == "widens":
        return (
            f"FSDP computes in {computed} what is kept in {kept}, in the forward at {place(found[0])}",
            "What was rounded stays rounded; gathering takes more bytes than the parameters have.",
        )
    return (
        f"FSDP's mixed precision has no float32 to keep in the forward at {place(found[0])}: parameters are {kept}",
        f"The optimizer steps on {kept}, which rounds small updates away; all that the policy does is to cast inputs.",
    )
