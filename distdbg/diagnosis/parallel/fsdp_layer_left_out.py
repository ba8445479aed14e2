"""Some layers are no FSDP units, though their like are: they stay gathered as long as the unit around them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("fsdp-layer-left-out")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    names, count = fields.get("names"), fields.get("count")
    shown = ", ".join(map(str, names)) if isinstance(names, list) else ""
    of_all = f"{count} of {fields.get('layers')} layers of the kind {fields.get('layer')}"
    return (
        f"{of_all} are no FSDP units of their own in the forward at {place(found[0])}: {shown}",
        f"Their {fields.get('parameters')} parameters are gathered with the unit around them, and kept as long as it.",
    )
