"""A rank waits for its next batch, while the others wait for the rank."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._stuck import stuck
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="stuck-in-dataloader",
        severity="error",
        title="a rank waits for its next batch",
        meaning="next() of a DataLoader does not return: the data set or a worker of the loader waits for a file, a "
        "lock or a server, or a worker has inherited a lock that nobody will release.",
        how_seen="DataLoader's frames stand on the rank's stack; the stacks of its workers show which line of the data "
        "set they are in.",
        remedy="Look at the data set's line. Locks that exist before the workers are forked are copied as they are: "
        "make them in worker_init_fn, or use the spawn start method. DataLoader's own timeout= turns such a "
        "wait into an error.",
        source="https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return stuck(evidence, "stuck-in-dataloader", (Doing.LOADER,), DOCS[0].remedy)
