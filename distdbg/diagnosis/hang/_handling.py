"""How a check says that a rank stands in an `except` or a `finally`: what it raised comes before where it stands."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.handling import handling
from distdbg.evidence.run import ExceptionFact, RunEvidence

_MOST = 160
_MOST_TOLD = 3
REMEDY = (
    "Mend what raised. A rank that fails alone should end: torchrun then ends the others. No collective belongs into "
    "an `except` or a `finally`, nor a wait for the other ranks."
)


def raised(evidence: RunEvidence, ranks: Iterable[int]) -> str:
    """`ValueError: the shard is torn (train.py:14)` of the first of `ranks`; empty where none handles anything."""
    facts = handling(evidence, ranks)
    return _words(facts[min(facts)]) if facts else ""


def handled(evidence: RunEvidence, ranks: Iterable[int]) -> str:
    """`Rank 2 is still handling ValueError: … (train.py:14).` for the first few; empty where none handles anything."""
    facts = sorted(handling(evidence, ranks).items())
    said = [f"Rank {rank} is still handling {_words(fact)}." for rank, fact in facts[:_MOST_TOLD]]
    return " ".join([*said, f"So are {len(facts) - _MOST_TOLD} more."] if len(facts) > _MOST_TOLD else said)


def _words(fact: ExceptionFact) -> str:
    line = next(iter(fact.message.splitlines()), "")
    text = f"{fact.type}: {line}" if line else fact.type
    text = text if len(text) <= _MOST else f"{text[:_MOST]}…"
    where = f" ({fact.where[0].rpartition('/')[2]}:{fact.where[1]})" if fact.where else ""
    return f"{text}{where}"
