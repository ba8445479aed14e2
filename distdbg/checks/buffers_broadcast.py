"""DDP sends large buffers to all ranks before each forward."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import Seen, is_dear, of_place, same_places
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="buffers-broadcast",
        severity="warning",
        title="DDP broadcasts large buffers in each forward",
        meaning="Before each forward DDP sends all buffers of rank 0 to the others, so that statistics of batch norms "
        "stay the same. Tables, masks and positions that are registered as buffers go along, though they never "
        "change, and the forward waits for them.",
        how_seen="In a profile, DDP's `_sync_buffers` in most of the steps, with 250,000 numbers or more, where it is "
        "5 % of a step on every rank that was profiled: on one rank alone it may be the wait for another.",
        remedy="DistributedDataParallel(..., broadcast_buffers=False) where buffers are the same on all ranks; else "
        "keep what never changes out of the buffers (a plain attribute on the device), and use SyncBatchNorm.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
)
_FEWEST = 250_000


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in same_places(evidence, "buffers"):
        if _numbers(group[0]) < _FEWEST or not all(is_dear(s.profile, s.dear.us) for s in group):
            continue
        if len(group) < len(evidence.profiles):
            continue
        least = min(group, key=lambda s: s.dear.us)
        ordered = [least, *(s for s in group if s is not least)]
        numbers = _numbers(least) / 1e6
        yield of_place(
            evidence,
            DOCS[0],
            ordered,
            f"{least.dear.where} waits in each forward until DDP has sent {numbers:.1f} million numbers of buffers",
        )


def _numbers(seen: Seen) -> int:
    return int(seen.dear.what or 0)
