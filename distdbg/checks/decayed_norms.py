"""Weight decay on norms and biases, where others of them are exempt."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="decayed-norms",
        severity="info",
        title="some norms or biases are under weight decay, and others are exempt",
        meaning="Weight decay is meant for matrices; for the scales of norms and for biases it is commonly set to 0. "
        "Where they are chosen by name, a pattern like `LayerNorm.weight` misses what is called `norm1.weight`, and "
        "nobody notices.",
        how_seen="A guard looks once at the optimizer's groups. One decays nothing and holds vectors only, which shows "
        "the intention; another decays, and holds vectors as well. Where norms alone are exempt, biases of other "
        "layers are none.",
        remedy="Choose what is exempt by its shape: `p.ndim < 2`, or by the class of its module.",
        source="https://github.com/karpathy/minGPT/pull/24",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "decayed-norms")):
        fields = found[0].fields
        names = fields.get("names")
        shown = ", ".join(map(str, names)) if isinstance(names, list) else ""
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"{fields.get('count')} norms or biases are under the weight decay of the optimizer that steps at "
            f"{place(found[0])}: {shown}",
            f"{fields.get('exempt')} others are in a group without decay.",
            confidence="likely",
        )
