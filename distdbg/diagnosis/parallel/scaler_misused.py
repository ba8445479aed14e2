"""Half precision and its GradScaler do not fit together."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding, Severity

DOCS = entries("scaler-misused")
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
