"""Some layers are no FSDP units, though their like are: they stay gathered as long as the unit around them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="fsdp-layer-left-out",
        severity="warning",
        title="a layer is no FSDP unit, though its siblings are",
        meaning="What is in no unit of its own belongs to the unit around it, mostly the root: it is gathered before "
        "the first layer computes, and stays until the last gradient, on every rank.",
        how_seen="A guard looks at the units of an FSDP model of over 10 million parameters once: in one ModuleList, "
        "ModuleDict or Sequential most layers of a class are units or hold some, and others, no smaller, do not.",
        remedy="Call fully_shard on each of the layers before the root, or let the policy name the layer's class.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
)


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
