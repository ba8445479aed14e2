"""A layer with two learning rates, or with another layer's, where each layer was to have its own."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="layer-rates-mixed",
        severity="warning",
        title="a layer has two learning rates, or that of another layer",
        meaning="With layer-wise decay each layer has a rate of its own. A pattern like `layers.1` takes `layers.10` "
        "along, and a part that no pattern names falls to the default: torch refuses one parameter in two groups, and "
        "sees none of this.",
        how_seen="A guard looks once at the optimizer's groups. At least three quarters of a list of layers have one "
        "rate each, which rises or falls from layer to layer; the others have two, or one that breaks the order. A "
        "part that has one rate in all layers that have it is left out.",
        remedy="Take the number of the layer out of the name (`int(name.split('.')[1])`) instead of looking for a part "
        "of it, and print what each group holds.",
        source="https://arxiv.org/abs/1801.06146",
    ),
)


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
