"""Each rank gathers the whole model, which was sharded because it does not fit."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

_GIB = 1 << 30
DOCS = entries("full-state-dict-gather")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "full-state-dict-gather")):
        fields = found[0].fields
        size = fields.get("bytes")
        size = size if isinstance(size, int) else 0
        told = f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"
        more = " The state of its optimizers comes on top of that." if fields.get("with_optimizer") else ""
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"each rank gathers the whole model at {place(found[0])}: {told} on its own {fields.get('device')}",
            f"{fields.get('parameters')} parameters, and not offloaded.{more}",
            severity="warning" if size >= _GIB else "info",
        )
