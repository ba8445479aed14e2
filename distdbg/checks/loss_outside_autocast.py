"""A loss in half precision, because it was computed outside of autocast."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="loss-outside-autocast",
        severity="warning",
        title="the loss is computed in half precision, outside of autocast",
        meaning="Under autocast torch computes losses in float32. Outside of it they take what the model gives, "
        "and sum over a batch in half precision: large sums lose their small parts, and float16 overflows at 65504.",
        how_seen="A guard sees the wrapped model's forward run under autocast, and a loss function of torch's make a "
        "number of half precision, as it never does under autocast; three backwards in a row.",
        remedy="Compute the loss within the same `with torch.autocast(…):`, or of outputs.float().",
        source="https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    loss, dtype = found[0].fields.get("loss"), found[0].fields.get("dtype")
    return (
        f"the loss whose backward begins at {place(found[0])} is computed in {dtype}",
        f"The forward runs under autocast, and {loss} does not: it stands outside of it.",
    )
