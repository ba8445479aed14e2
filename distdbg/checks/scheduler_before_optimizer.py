"""The learning rate moves on before the step that it was meant for."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="scheduler-before-optimizer",
        severity="warning",
        title="the scheduler steps before the optimizer",
        meaning="Since torch 1.1 a scheduler is stepped after the optimizer. Stepped before it, the first value of the "
        "schedule is never used, and each step has the rate of the next. torch warns of it once, on stderr, and of a "
        "GradScaler that skips its first step with the same words.",
        how_seen="A guard in each rank: after a step of the optimizer a backward began, the scheduler moved once, and "
        "the same optimizer stepped; three times in a row. A step that a GradScaler skips does not look like that.",
        remedy="Call scheduler.step() after optimizer.step().",
        source="https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    return (
        f"the {fields.get('scheduler')} moves before the optimizer steps at {place(found[0])}",
        f"{fields.get('times')} times in a row it moved after the backward, and before the step.",
    )
