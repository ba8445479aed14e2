"""Several ranks write one checkpoint file at the same step: the last one wins, or a mixture of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from distdbg.checks._guards import Facts, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="checkpoint-race",
        severity="warning",
        title="several ranks write the same checkpoint file",
        meaning="Every rank saves to one name (torch.save, safetensors, save_pretrained, numpy, or "
        "torch.distributed.checkpoint with no_dist): each truncates what another is writing. The file is torn when "
        "two overlap, and holds some rank's state otherwise; loading it fails, or silently gives one rank's random "
        "state to all.",
        how_seen="A guard in each rank notes path, inode and step of its first saves. The same path and the same "
        "inode on one host, at the same step, from different ranks. Files with the rank in their name, and disks that "
        "each node has for itself, are right.",
        remedy="Save on rank 0 only (`if dist.get_rank() == 0:`), or put the rank into the name where each has a "
        "state of its own. `--guard checkpoint-race=fix` gives the name to the lowest rank.",
        source="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
    ),
)


_TORN = {True: ": they wrote at the same moment", False: ", one after the other this time", None: ""}


def check(evidence: RunEvidence) -> Iterable[Finding]:
    host = {rank.rank: rank.host for rank in evidence.ranks}
    same: dict[tuple[object, ...], dict[int, Facts]] = {}
    for fact in facts(evidence, "checkpoint-race"):
        key = host.get(fact.rank), fact.fields.get("path"), str(fact.fields.get("inode")), fact.step
        same.setdefault(key, {}).setdefault(fact.rank, [fact])
    told = set()
    for (_, path, _, step), by_rank in same.items():
        found = [fact for those in by_rank.values() for fact in those]
        if len(found) < 2 or found[0].where in told:
            continue
        told.add(found[0].where)
        torn = _overlap(found)
        if found[0].fields.get("kept"):
            name = str(path).rpartition("/")[2]
            last = f"{name}.rank{max(by_rank):05d}"
            yield observe(
                evidence,
                DOCS[0],
                found,
                f"{len(found)} ranks write {path} at {place(found[0])}; rank {min(by_rank)} kept the name",
                f"All at step {step}. The others' files lie beside it, with their rank in the name ({last}).",
            )
            continue
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"{len(found)} ranks write {path} at {place(found[0])}",
            f"All at step {step}{_TORN[torn]}.",
        )


def _overlap(found: Facts) -> bool | None:
    """None where it is not known when they had written."""
    if not all(fact.fields.get("ended") for fact in found):
        return None
    spans = sorted((fact.fields.get("began") or 0, fact.fields["ended"]) for fact in found)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
