"""Half precision and its GradScaler do not fit together."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc, Severity

DOCS = (
    FindingDoc(
        id="scaler-misused",
        severity="warning",
        title="half precision without the GradScaler that it needs, or a GradScaler that is of no use",
        meaning="In float16 a gradient below 6e-8 is zero, and many are: a GradScaler multiplies the loss, divides the "
        "gradients, and skips steps that overflowed. An optimizer that steps past it uses gradients some thousands of "
        "times too large. bfloat16 has the range of float32: there a scaler only costs, and waits for the device in "
        "each step.",
        how_seen="A guard looks at the autocast of the wrapped model's forward, at what the backward begins from, and "
        "at whether the optimizer's step comes from a GradScaler; three steps in a row. Losses and gradients that are "
        "scaled by hand are left alone.",
        remedy="float16: scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(). bfloat16: leave the "
        "scaler out, or make it with enabled=False.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)
_TOLD: dict[object, tuple[Severity, str, str, str]] = {
    "float16": (
        "warning",
        "the forward runs in float16, and the optimizer steps at {} without a GradScaler",
        "Small gradients become zero in float16 unless the loss is scaled.",
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); or use bfloat16.",
    ),
    "bfloat16": (
        "info",
        "the forward runs in bfloat16, and the optimizer steps at {} through a GradScaler that it does not need",
        "The scaler waits for the device in each step, to see whether a gradient overflowed.",
        "Leave the scaler out, or make it with enabled=False.",
    ),
    "past": (
        "warning",
        "the loss is scaled by a GradScaler, and the optimizer steps past it at {}",
        "The gradients still carry the scaler's factor, some thousands.",
        "scaler.step(optimizer); scaler.update(); in place of optimizer.step().",
    ),
}


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "scaler-misused")):
        told = _TOLD.get(found[0].fields.get("misuse"))
        if told is not None:
            severity, summary, cause, remedy = told
            summary = summary.format(place(found[0]))
            yield observe(evidence, DOCS[0], found, summary, cause, remedy=remedy, severity=severity)
