"""Every step uses the sum of all gradients since the start, because nobody clears them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="missing-zero-grad",
        severity="warning",
        title="gradients are not cleared between optimizer steps",
        meaning="backward adds to the gradients that are there. Without zero_grad each step uses the sum of all steps "
        "so far: the training diverges, or looks like one with a far too large learning rate.",
        how_seen="A guard looks at one parameter in a few steps: its gradient is the same tensor, untouched, from one "
        "step of the optimizer to the next backward, and that backward adds to it; three times in a row. Accumulation "
        "over micro-batches, SAM, GANs and gradients cleared or written by hand are none.",
        remedy="Call optimizer.zero_grad() once for each optimizer step, before the backward or after the step.",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/zeroing_out_gradients.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "missing-zero-grad")):
        on_cpu = found[0].fields.get("device") == "cpu"
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"the optimizer that steps at {place(found[0])} uses gradients that are never cleared",
            f"{found[0].fields.get('times')} times in a row a backward added to the gradient of the step before."
            + ("" if on_cpu else " A gradient that is zeroed through .data would look the same."),
            confidence="certain" if on_cpu else "likely",
        )
