"""Several ranks write one checkpoint file at the same step: the last one wins, or a mixture of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from distdbg.diagnosis.guards import Facts, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("checkpoint-race")


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
