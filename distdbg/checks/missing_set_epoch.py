"""Every epoch goes through the data in the same order, because nobody tells the sampler which epoch it is."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="missing-set-epoch",
        severity="warning",
        title="each epoch has the same order: set_epoch is not called",
        meaning="DistributedSampler shuffles by seed and epoch. As long as nobody tells it the epoch, every epoch "
        "deals out the same batches in the same order to the same ranks: the model trains, and a little worse.",
        how_seen="A guard in each rank: two passes in which at least half of the batches were taken and the optimizer "
        "stepped, of one sampler that shuffles, with the same `epoch` in it. A batch that is peeked at is no pass. A "
        "script that names set_epoch is judged at its end, by three passes, since it may go through its data several "
        "times an epoch; where a sampler has an order of its own, the first batches were the same, too.",
        remedy="Call sampler.set_epoch(epoch) at the head of each epoch, or launch with `--guard "
        "missing-set-epoch=fix`.",
        source="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    first = found[0].fields
    epoch = first.get("epoch")
    if first.get("fixed"):
        return (
            f"the loop at {place(found[0])} never calls set_epoch; it was called for it",
            f"A second pass was about to begin under epoch {epoch}. Where workers fetch ahead, it still had that "
            "order.",
        )
    return (
        f"the loop at {place(found[0])} goes through its data in the same order each time: set_epoch is not called",
        f"Two passes that trained had epoch {epoch} in a sampler that shuffles by it.",
    )
