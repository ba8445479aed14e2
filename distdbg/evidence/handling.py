"""Ranks that stand in an `except` or a `finally`: what they raised comes before where they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.evidence.run import ExceptionFact, RunEvidence

#: Said by raising them, and no failure: the end of an iterator, an empty queue.
_SIGNALS = {"StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty"}
#: Clocks of hosts differ by less; an answer that is older belongs to a dump before this one.
_CLOCKS_S = 5.0


def handling(evidence: RunEvidence, ranks: Iterable[int]) -> dict[int, ExceptionFact]:
    """What the main threads of `ranks` were handling when the dump was taken; who handled nothing, or could not answer,
    is not in it."""
    since = (evidence.dump.t if evidence.dump is not None else 0.0) - _CLOCKS_S
    wanted = set(ranks)
    return {
        record.rank: fact
        for record in evidence.ranks
        if record.rank in wanted and (fact := record.handling) is not None and fact.t >= since
        if fact.type.rpartition(".")[2] not in _SIGNALS
    }
