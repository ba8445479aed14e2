"""Gradients are averaged over all ranks several times for each step of the optimizer; once would do."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="redundant-allreduce",
        severity="warning",
        title="DDP reduces gradients for each micro-batch",
        meaning="Gradients are accumulated over micro-batches, and every one of them is followed by an all-reduce of "
        "the whole model. The result is the same as with one, at several times the traffic.",
        how_seen="A guard in each rank: several backwards of one line, each after a forward of a DDP module outside of "
        "no_sync, without anything cleared between, and then one step of the optimizer; three times in a row.",
        remedy="Run all micro-batches but the last, forward and backward, within `with model.no_sync():`.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    times = found[0].fields.get("reduced")
    return (
        f"the backward at {place(found[0])} reduces gradients {times} times for each step of the optimizer",
        "One all-reduce a step gives the same gradients.",
    )
