"""The graphs of steps that are long over are kept alive: memory grows with each step."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="graph-retained",
        severity="warning",
        title="the graphs of old steps are kept alive",
        meaning="A loss that is added to a sum or a list without detach() or item(), an output that a module keeps, a "
        "hidden state that goes on to the next batch: each holds on to the graph that made it, and that to tensors of "
        "its step. Memory grows with each step until it runs out.",
        how_seen="A guard hangs tokens on the graph of each of the first backwards. Of at least eight of those graphs "
        "something was still alive forty steps later.",
        remedy="Keep loss.item() or loss.detach() instead of the loss; detach a hidden state between batches.",
        source="https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    return (
        f"the graphs that the backward at {place(found[0])} ran through are kept alive",
        f"{fields.get('kept')} of {fields.get('of')} graphs of the first steps were there {fields.get('after')} "
        "steps later.",
    )
