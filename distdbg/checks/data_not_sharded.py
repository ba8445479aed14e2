"""All ranks train on the same batches: a job of N ranks does N times the work of one."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import alike, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="data-not-sharded",
        severity="warning",
        title="the ranks train on the same batches",
        meaning="Data parallelism means that each rank reads other data. Without a DistributedSampler, or with one "
        "that was told of one replica, and with the same seed everywhere, every rank reads all of it in the same "
        "order: the gradients that are averaged are the same, and N ranks train as one would.",
        how_seen="A guard in each rank takes a checksum of the first batch of a loader that trains, all over its "
        "tensors, and sees a tensor of that shape enter the model. The same loop, as many batches, and the same first "
        "batch, on ranks over which DDP or FSDP averages the gradients. Datasets that are split among the ranks "
        "differ, whatever their sampler; where each rank gives the model a part of the batch, the batch may be the "
        "same.",
        remedy="Give the DataLoader sampler=DistributedSampler(dataset), or split the dataset by rank.",
        source="https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html#distributing-input-data",
    ),
)

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
