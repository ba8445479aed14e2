"""Detect ranks that train in step and have loaders of different lengths, of which one ended before the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distdbg.diagnosis.guards import facts, guard_finding, place
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.waits.divergence import divergence_of
from distdbg.diagnosis.waits.divergence_record import Kind
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.jsonl import integer
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding, grouped
from distdbg.wording import name_ranks


@dataclass
class _Pass:
    """One pass of a loop, as each rank reported it."""

    begins: dict[int, GuardFact] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)

    def batches(self) -> Mapping[int, int]:
        counts = {rank: fact.fields.get("batches") for rank, fact in self.begins.items()}
        return {rank: count for rank, count in counts.items() if isinstance(count, int)}


@rule("loader-lengths-differ", needs=("rank.guards",))
def loader_lengths_differ(evidence: RunEvidence) -> Iterable[Finding]:
    reported = set()
    totals = _totals(evidence)
    for one in _passes(evidence):
        batches = one.batches()
        least = min(batches.values(), default=0)
        ended = [rank for rank, count in batches.items() if count == least and rank in one.steps]
        longer = [rank for rank, count in batches.items() if count > least]
        where = next(iter(one.begins.values())).where if one.begins else None
        if not ended or not longer or where in reported:
            continue
        most = max(one.steps[short] for short in ended)
        went_on = [rank for rank in longer if one.steps.get(rank, 0) > most and _has_more(totals, rank, ended)]
        hangs = not went_on and _ends_in_a_hang(evidence)
        if went_on or hangs:
            reported.add(where)
            yield _finding(evidence, one, batches, hangs=hangs)


def _ends_in_a_hang(evidence: RunEvidence) -> bool:
    """The ranks' last calls differ because some are out of data."""
    hang, divergence = hang_of(evidence), divergence_of(evidence)
    died = evidence.dump is not None and evidence.dump.reason == "death"
    return divergence is not None and divergence.kind is Kind.UNEVEN and (died or (hang is not None and hang.stands))


def _passes(evidence: RunEvidence) -> Iterable[_Pass]:
    found: dict[tuple[object, ...], _Pass] = {}
    for fact in facts(evidence, "loader-lengths-differ"):
        one = found.setdefault((fact.where, integer(fact.fields, "number")), _Pass())
        among, steps = fact.fields.get("among"), fact.fields.get("steps")
        if isinstance(among, list) and fact.rank in among:
            one.begins[fact.rank] = fact
        elif isinstance(steps, int):
            one.steps[fact.rank] = steps
    return found.values()


def _totals(evidence: RunEvidence) -> Mapping[int, tuple[int, bool]]:
    """For each rank whose script ended: its number of backwards, and whether it ended without an error."""
    passes = [(fact.rank, fact.fields) for fact in facts(evidence, "loader-lengths-differ")]
    return {
        rank: (count, fields.get("by_itself") is True)
        for rank, fields in passes
        if isinstance(count := fields.get("backwards"), int)
    }


def _has_more(totals: Mapping[int, tuple[int, bool]], rank: int, ended: Iterable[int]) -> bool:
    """Backwards than one that has ended by itself. Who goes round a shorter loader more often makes as many."""
    known = [totals[short] for short in ended if short in totals]
    return rank in totals and any(totals[rank][0] > count and by_itself for count, by_itself in known)


def _finding(evidence: RunEvidence, one: _Pass, batches: Mapping[int, int], *, hangs: bool) -> Finding:
    by_length = grouped((count, rank) for rank, count in sorted(batches.items()))
    counts = ", ".join(f"{count} on {name_ranks(r)}" for count, r in sorted(by_length.items()))
    shortest_first = sorted(one.begins.values(), key=lambda fact: (batches.get(fact.rank, 0), fact.rank))
    after = (
        "the others wait in a step for those whose loader has ended" if hangs else "the others step on without those"
    )
    return guard_finding(
        evidence,
        "loader-lengths-differ",
        shortest_first,
        f"the loaders of the loop at {place(shortest_first[0])} have {min(by_length)} to {max(by_length)} batches",
        f"Batches: {counts}; {after}.",
    )
