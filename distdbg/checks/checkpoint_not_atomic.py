"""The only checkpoint is overwritten in place."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="checkpoint-not-atomic",
        severity="info",
        title="the only checkpoint is overwritten in place",
        meaning="torch.save to the name of the last checkpoint cuts that file to nothing and then writes: a job that "
        "is killed meanwhile, out of memory or out of time, has neither the old one nor the new one.",
        how_seen="A guard sees torch.save open a name for the second time and find the inode that it wrote before, "
        "with no other file of at least half the size beside it, nor one elsewhere that this rank saved once, in a "
        "script that copies no files.",
        remedy="Write under another name, then rename: torch.save(state, part); os.replace(part, path). Or launch with "
        "`--guard checkpoint-not-atomic=fix`.",
        source="https://docs.python.org/3/library/os.html#os.replace",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    path = found[0].fields.get("path")
    if found[0].fields.get("fixed"):
        return (
            f"{place(found[0])} overwrites {path} in place; it was written under another name and renamed for it",
            "There is no other checkpoint beside it.",
        )
    return (
        f"{place(found[0])} overwrites {path} in place, and there is no other checkpoint beside it",
        "A job that is killed while it writes has no checkpoint left.",
    )
