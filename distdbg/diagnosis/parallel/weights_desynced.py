"""Compare the checksums of the weights of ranks that average their gradients."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.failures.models_differ import apart
from distdbg.diagnosis.guards import Facts, facts, guard_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding


@rule("weights-desynced", needs=("rank.guards",))
def weights_desynced(evidence: RunEvidence) -> Iterator[Finding]:
    """The first step at which they differ, and there the first parameter; of ranks whose sums can be compared."""
    steps: dict[tuple[int, str], dict[int, GuardFact]] = {}
    for fact in facts(evidence, "weights-desynced"):
        at = fact.fields.get("at")
        if isinstance(at, int):
            key = at, str([fact.fields.get(name) for name in ("among", "machine", "each")])
            steps.setdefault(key, {})[fact.rank] = fact
    for (step, _), by_rank in sorted(steps.items(), key=lambda item: item[0]):
        found = list(by_rank.values())
        sums = {fact.rank: _sums(fact) for fact in found}
        names = [name for name, _ in sums[found[0].rank]]
        if any([name for name, _ in its] != names for its in sums.values()):
            continue
        first = next((n for n in range(len(names)) if _equal_at_start(found, n) and _differ(sums, n)), None)
        if first is not None:
            yield _finding(evidence, step, found, names[first], {rank: its[first][1] for rank, its in sums.items()})
            return


def _differ(sums: dict[int, tuple[tuple[str, str], ...]], number: int) -> bool:
    return len({of_rank[number] for of_rank in sums.values()}) > 1


def _equal_at_start(found: Facts, number: int) -> bool:
    """Whether the ranks began with equal values. DDP sees to that, and its facts do not give them."""
    starts = [fact.fields.get("start") for fact in found]
    known = [str(start[number]) for start in starts if isinstance(start, list) and number < len(start)]
    return not any(starts) or (len(known) == len(starts) and len(set(known)) == 1)


def _finding(evidence: RunEvidence, step: int, found: Facts, name: str, sums: dict[int, str]) -> Finding:
    """About the ranks that differ from more than half of them; about all of them where there is no such half."""
    odd, decided = apart(sums)
    each = found[0].fields.get("each")
    where = name if each == 1 else f"the {each} parameters from {name} on"
    cause = f"{who(evidence, tuple(sorted(set(sums) - set(odd))))} have the same weights." if decided else (
        "Which of them are as meant is not known."
    )  # fmt: skip
    left_out = found[0].fields.get("left_out")
    remedy = ""
    if isinstance(left_out, list) and left_out and (name in left_out or each != 1):
        remedy = "All-reduce the gradients of these parameters, too, before the optimizer steps."
        cause += f" The script all-reduces gradients by itself, and leaves out {', '.join(map(str, left_out[:8]))}."
    return guard_finding(
        evidence,
        "weights-desynced",
        [fact for fact in found if fact.rank in odd],
        f"the weights of the ranks differ at step {step}, first in {where}",
        cause,
        remedy=remedy,
    )


def _sums(fact: GuardFact) -> tuple[tuple[str, str], ...]:
    """Of each parameter, or of each group of them: the name of the first, and the checksum."""
    value = fact.fields.get("sums")
    pairs = value if isinstance(value, list) else []
    return tuple((str(pair[0]), str(pair[1])) for pair in pairs if isinstance(pair, list) and len(pair) == 2)
