"""The ranks of a DDP job no longer have the same weights."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import facts, observe
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("weights-desynced")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    steps: dict[tuple[object, str], dict[int, GuardFact]] = {}
    for fact in facts(evidence, "weights-desynced"):
        steps.setdefault((fact.step, str(fact.fields.get("among"))), {})[fact.rank] = fact
    for (step, _), told in steps.items():
        name = _first_difference(list(told.values()))
        if name is not None:
            yield observe(
                evidence,
                DOCS[0],
                list(told.values()),
                f"the ranks' weights differ at step {step}, first in {name}",
                f"The norms of {name}: {_norms(told, name)}.",
            )
            return


def _first_difference(told: list[GuardFact]) -> str | None:
    names = told[0].fields.get("names")
    columns = [fact.fields.get("norms") for fact in told]
    if not isinstance(names, list) or not all(isinstance(c, list) and len(c) == len(names) for c in columns):
        return None
    return next(
        (str(name) for name, norms in zip(names, zip(*columns, strict=True), strict=True) if len(set(norms)) > 1), None
    )


def _norms(told: dict[int, GuardFact], name: str) -> str:
    shown = ((rank, fact.fields["norms"][fact.fields["names"].index(name)]) for rank, fact in sorted(told.items()))
    return ", ".join(f"{norm} on rank {rank}" for rank, norm in list(shown)[:4])
