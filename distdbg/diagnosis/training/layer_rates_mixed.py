"""A layer with two learning rates, or with another layer's, where each layer was to have its own."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("layer-rates-mixed")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "layer-rates-mixed")):
        fields = found[0].fields
        layers = fields.get("layers")
        told = "; ".join(_told(one) for one in layers) if isinstance(layers, list) else ""
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"{fields.get('count')} of {fields.get('of')} layers break the order of the learning rates in the "
            f"optimizer that steps at {place(found[0])}: {told}",
            "The rates of all other layers rise, or fall, from one to the next.",
            confidence="likely",
        )


def _told(one: object) -> str:
    """`blocks.10 has 0.001 and 0.002`."""
    if not isinstance(one, list) or len(one) != 2 or not isinstance(one[1], list):
        return ""
    return f"{one[0]} has {' and '.join(f'{rate:g}' for rate in one[1])}"
