"""Detect costs of torch.compile while the job runs: graph breaks and recompilations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, guard_finding, place
from distdbg.diagnosis.rules import rule
from distdbg.evidence.jsonl import integer
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding
from distdbg.wording import counted


@rule("graph-break", needs=("rank.guards",))
def graph_break(evidence: RunEvidence) -> Iterable[Finding]:
    """torch.compile left a function at a line of the user's, and went on behind it."""
    for found in by_place(facts(evidence, "graph-break")):
        fields = found[0].fields
        count = max(integer(fact.fields, "count") or 1 for fact in found)
        what, _, explanation = str(fields.get("reason")).partition(" Explanation: ")
        why = [explanation, f"torch's hint: {fields['hint']}" if fields.get("hint") else "",
               f"Seen in {counted(count, 'compilation')}"]  # fmt: skip
        yield guard_finding(
            evidence,
            "graph-break",
            found,
            f"the graph breaks at {place(found[0])}: {what}",
            " ".join(f"{sentence.rstrip('.')}." for sentence in why if sentence),
        )


#: As often as torch's own way of finding out what is dynamic takes.
_NORMAL_TIMES = 2
#: Sizes and Python's numbers take on any value, and are one kind of guard; switches that are on or off have few values.
_NUMBER = re.compile(r"(?<!requires_grad=)\d+")


@rule("recompile", needs=("rank.guards",))
def recompile(evidence: RunEvidence) -> Iterable[Finding]:
    """torch.compile compiled a function again, since a guard of its first graph failed."""
    for found in by_place(facts(evidence, "recompile")):
        guards: dict[str, int] = {}
        for fact in found:
            guard = str(fact.fields.get("guard_failed"))
            guards[guard] = max(guards.get(guard, 0), integer(fact.fields, "count") or 1)
        worst, count = max(guards, key=lambda guard: guards[guard]), sum(guards.values())
        limit = found[0].fields.get("limit")
        gave_up = any(fact.fields.get("gave_up") for fact in found)
        others = [f"{guard} ({times})" for guard, times in guards.items() if guard != worst]
        why = f"Other guards that failed there: {'; '.join(others)}. " if others else ""
        if gave_up:
            why += f"That is torch's limit ({limit} graphs): from there on it runs uncompiled."
        kinds: Counter[str] = Counter()
        for guard, times in guards.items():
            kinds[_NUMBER.sub("#", guard)] += times
        yield guard_finding(
            evidence, "recompile", found,
            f"compiled again {counted(count, 'time')}, since a guard failed at {place(found[0])}: {worst}",
            why.strip(), severity="warning" if gave_up or max(kinds.values()) > _NORMAL_TIMES else "info",
        )  # fmt: skip
