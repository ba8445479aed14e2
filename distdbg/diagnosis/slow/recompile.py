"""torch.compile compiled a function again, since a guard of its first graph failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("recompile")
#: As often as torch's own way of finding out what is dynamic takes.
_NORMAL = 2
#: Sizes and Python's numbers take on any value, and are one kind of guard; what is on or off comes to an end.
_NUMBER = re.compile(r"(?<!requires_grad=)\d+")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "recompile")):
        guards: dict[str, int] = {}
        for fact in found:
            guard = str(fact.fields.get("guard_failed"))
            guards[guard] = max(guards.get(guard, 0), int(fact.fields.get("count") or 1))
        worst, count = max(guards, key=lambda guard: guards[guard]), sum(guards.values())
        limit = found[0].fields.get("limit")
        gave_up = any(fact.fields.get("gave_up") for fact in found)
        others = [f"{guard} ({times})" for guard, times in guards.items() if guard != worst]
        why = f"Other guards that failed there: {'; '.join(others)}. " if others else ""
        if gave_up:
            why += f"That is torch's limit ({limit} graphs): from there on it runs uncompiled."
        yield observe(
            evidence, DOCS[0], found,
            f"compiled again {count} time{'s' * (count != 1)}, since a guard failed at {place(found[0])}: {worst}",
            why.strip(), severity="warning" if gave_up or _most_of_a_kind(guards) > _NORMAL else "info",
        )  # fmt: skip


def _most_of_a_kind(guards: Mapping[str, int]) -> int:
    kinds: Counter[str] = Counter()
    for guard, times in guards.items():
        kinds[_NUMBER.sub("#", guard)] += times
    return max(kinds.values())
