"""The run was over before its warm-up was."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="warmup-too-long",
        severity="warning",
        title="the warm-up is longer than the run",
        meaning="The learning rate rises for as many steps as the warm-up has. If the run has no more than these, it "
        "ends before the learning rate has reached its value, and nothing says so. Often the length was counted in "
        "micro-batches, or for one rank, and the schedule moves with each step of all ranks.",
        how_seen="At the end of a script that ended by itself: a LinearLR that rises, a OneCycleLR or a schedule of "
        "transformers had made fewer moves than its own warm-up has, and the rate was below its peak and still its "
        "own: a SequentialLR ends the warm-up itself. The last pass "
        "over the data was gone through to the end, or the schedule had made all the moves it was planned for.",
        remedy="Give the warm-up a few percent of the steps that the run will really make.",
        source="https://huggingface.co/docs/transformers/main_classes/optimizer_schedules",
    ),
)


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
