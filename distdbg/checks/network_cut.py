"""All ranks have begun an operation that none finishes: nobody on the hosts is to blame."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import who
from distdbg.checks._stuck import citations, since, waited
from distdbg.evidence.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.waits import Wait
from distdbg.model import CauseClass, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="network-cut",
        severity="error",
        title="a collective that all have begun does not end",
        meaning="Every member of the group is in the same operation, with the same sizes, and it does not end. The "
        "hosts have done their part: what is left is the network between them, or the devices.",
        how_seen="The flight recorders show the operation begun and unfinished on every rank that waits in it, and no "
        "member that has not come.",
        remedy="Look at the network between the nodes (link errors, a firewall, the interface in NCCL_SOCKET_IFNAME "
        "or GLOO_SOCKET_IFNAME) and at the GPUs (Xid messages in the kernel's log). No rank is named, since "
        "none is known.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.stands or hang.culprits or hang.circles or hang.mismatch is not None:
        return
    for wait in hang.complete:
        if wait.sequence is None or not _all_read(hang, wait):
            continue
        yield Finding(
            id="network-cut",
            severity="error",
            confidence="possible",
            summary=f"{who(evidence, wait.waiting)} wait in {wait.what}, which nobody is missing from",
            cause=waited(evidence, hang, (wait,)),
            remedy=DOCS[0].remedy,
            evidence=citations(hang, (), wait.waiting),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, (wait,)),
        )


def _all_read(hang: Hang, wait: Wait) -> bool:
    """Of every member of the group it is known what it has begun."""
    groups = [g for g in hang.groups if g.name == wait.group and set(wait.waiting) <= set(g.ranks)]
    return all(rank in group.logs for group in groups for rank in group.ranks)
