"""A checkpoint holds the names of the wrapped model, and only a model that is wrapped in the same way loads it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("checkpoint-module-prefix")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    names = fields.get("names")
    first = f", the first {names[0]}" if isinstance(names, list) and names else ""
    return (
        f"the checkpoint of {place(found[0])} holds the wrapped model's names: all begin with {fields.get('prefix')}",
        f"{fields.get('count')} names{first}.",
    )
