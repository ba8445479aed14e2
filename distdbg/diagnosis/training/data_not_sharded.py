"""All ranks train on the same batches: a job of N ranks does N times the work of one."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import alike, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("data-not-sharded")

_TOLD_WRONG = (
    "Make the DistributedSampler without num_replicas and rank after init_process_group, or give it the number of the "
    "ranks that average their gradients, and each rank's own."
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in alike(facts(evidence, "data-not-sharded"), "batch", "batches", "part"):
        fields = found[0].fields
        samplers = fields.get("samplers")
        names = " over ".join(samplers) if isinstance(samplers, list) else "its sampler"
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"the ranks train on the same batches in the loop at {place(found[0])}",
            f"{len(found)} ranks began a pass with the same batch; their loaders deal out {fields.get('items')} items "
            f"in {fields.get('batches')} batches by {names}.",
            remedy=_TOLD_WRONG if "DistributedSampler" in names else "",
        )
