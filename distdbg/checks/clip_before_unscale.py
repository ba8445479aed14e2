"""Gradients are clipped while they still carry the scaler's factor."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="clip-before-unscale",
        severity="warning",
        title="gradients are clipped before they are unscaled",
        meaning="Under a GradScaler gradients are multiplied by some thousands. Clipping them to 1.0 then makes the "
        "step tiny, and how tiny changes whenever the scale does.",
        how_seen="A guard sees torch clip gradients to a bound of at most 100 while the GradScaler of their optimizer "
        "has not unscaled them, and the optimizer's next step go through that scaler; three times in ten steps.",
        remedy="Call scaler.unscale_(optimizer) before clipping.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    bound = found[0].fields.get("bound")
    return (
        f"gradients are clipped to {bound} at {place(found[0])} while they still carry the GradScaler's factor",
        "The scaler had not unscaled them, and took its factor out of what was left of them in its step.",
    )
