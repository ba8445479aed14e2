"""A model is sharded in one piece: every rank gathers all of it for each forward and backward."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="fsdp-single-unit",
        severity="warning",
        title="FSDP gathers the whole model at once",
        meaning="FSDP gathers the parameters of one unit at a time. With one unit that is the whole model: no memory "
        "is saved while it computes, and nothing overlaps with the gathering. The wrap policy matched nothing, or "
        "fully_shard was called on the root only.",
        how_seen="A guard adds up the parameters of each FSDP unit once: the largest holds nine tenths of over 10 "
        "million, though the model has layers of one kind in a row.",
        remedy="Call fully_shard on each layer before the root, or give FSDP a policy that names the layer's class.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
)


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
