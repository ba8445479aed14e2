"""Ranks that stand in an `except` or a `finally`: what they raised comes before where they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.evidence.frames import Origin, origin_of
from distdbg.evidence.run import ExceptionFact, RunEvidence
from distdbg.evidence.stacks.tracebacks import last_chain

#: Said by raising them, and no failure: the end of an iterator, an empty queue.
SIGNALS = {"StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty"}
#: A rank is asked before it is looked at, by at most so much; an older answer belongs to a dump before this one.
_ASKED_BEFORE_S = 10.0


def handling(evidence: RunEvidence, ranks: Iterable[int]) -> dict[int, ExceptionFact]:
    """What the main threads of `ranks` were handling when the dump was taken; who handled nothing, or could not answer,
    is not in it."""
    wanted, looked = set(ranks), evidence.dump.ranks if evidence.dump is not None else {}
    return {
        record.rank: fact
        for record in evidence.ranks
        if record.rank in wanted and record.rank in looked and (fact := record.handling) is not None
        # both times are of the rank's own host; the dump's own is of the launcher's, and of its end
        if fact.t >= looked[record.rank].first.t - _ASKED_BEFORE_S
        if fact.type.rpartition(".")[2] not in SIGNALS and not within_python(fact)
    }


def within_python(fact: ExceptionFact) -> bool:
    """True for an exception that Python's own library raises and handles, as importlib does: all frames are its own."""
    chain = last_chain(fact.traceback)
    frames = chain[-1].frames if chain else ()
    return bool(frames) and all(origin_of(frame.file) is Origin.STANDARD for frame in frames)
