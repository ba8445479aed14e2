"""DDP without device_ids, in a rank whose current GPU is not its model's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="ddp-without-device-ids",
        severity="warning",
        title="DDP over GPUs without device_ids",
        meaning="Without device_ids and without torch.cuda.set_device every rank's default device is GPU 0: barriers, "
        "and whatever says just `cuda`, meet there, and each rank takes some hundred MiB of it for a context.",
        how_seen="A guard sees the forward of a DDP model that is on one GPU and was given no device_ids, while the "
        "rank's current GPU is another one; three times in a row. A device_ids that does not fit is known by the "
        "message of the exception that it ends with.",
        remedy="Call torch.cuda.set_device(local_rank) first, and pass device_ids=[local_rank].",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    own, current = found[0].fields.get("own"), found[0].fields.get("current")
    return (
        f"the model of {place(found[0])} is on cuda:{own} while the current device is cuda:{current}",
        "DDP was given no device_ids, and nothing has chosen this rank's GPU.",
    )
