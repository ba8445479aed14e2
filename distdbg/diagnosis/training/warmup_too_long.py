"""The run was over before its warm-up was."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("warmup-too-long")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    warmup, rate, peak = (fields.get(name) for name in ("warmup", "rate", "peak"))
    return (
        f"the {fields.get('scheduler')} of {place(found[0])} was still in its warm-up when the training ended: "
        f"{fields.get('moves')} of {_short(warmup, 0)} moves",
        f"After {fields.get('steps')} steps of the optimizer the learning rate was {_short(rate, 4)}, and not yet "
        f"{_short(peak, 4)}.",
    )


def _short(value: object, digits: int) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.{digits}g}" if digits else f"{value:.0f}"
