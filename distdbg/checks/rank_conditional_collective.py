"""A collective stands where only some ranks come: inside or behind an `if` about the rank."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._diverged import diverged
from distdbg.evidence.divergence import Kind
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="rank-conditional-collective",
        severity="error",
        title="a collective that only some ranks come to",
        meaning="A barrier, a save of sharded state, an evaluation through the DDP wrapper or a new_group stands "
        "below something like `if rank == 0`. The ranks that come wait for those that do not.",
        how_seen="Ranks are in different collectives, and in the script's source a line of one side's stack stands in "
        "a branch of an `if` about the rank, or behind one that returns, which the other side's does not; and the "
        "other branch does not make the same call as often.",
        remedy="Move the collective out of the `if`: every rank calls it, and only rank 0 writes or prints. Evaluate "
        "with model.module on one rank, gather sharded state on all ranks, call new_group on all ranks.",
        source="https://pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return diverged(evidence, Kind.RANK_CONDITIONAL, DOCS[0].remedy)
