"""Describe the state of each rank of a run: a word, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.evidence.exit_status import how_it_ended
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import CauseClass, RankSummary

#: States of a rank that had not ended when the evidence was read.
ALIVE = frozenset({"starting", "running"})


def rank_summaries(evidence: RunEvidence) -> Iterable[RankSummary]:
    own = {f.rank.rank: f for f in failures(evidence)}
    for rank in evidence.ranks:
        failure = own.get(rank.rank)
        where = str(failure.where) if failure is not None and failure.where else None
        yield RankSummary(rank.rank, rank.host, rank_state(evidence, rank, failure), rank.step, where)


def rank_state(evidence: RunEvidence, rank: RankRecord, failure: RankFailure | None) -> str:
    """`finished`, `failed (exit code 1)`, `killed (SIGKILL)`, `stopped (SIGTERM)`, `starting`, `running`, `unknown`."""
    code = rank.own_exit_code
    if code is None:
        if evidence.is_over is not False or rank.ended is not None or rank.exit_unknown_because:
            return "unknown"
        return "starting" if rank.pid is None else "running"
    return "finished" if code == 0 else _failed_state(code, failure)


def _failed_state(code: int, failure: RankFailure | None) -> str:
    how = how_it_ended(code)
    if failure is None or failure.cause_class is CauseClass.VICTIM:
        return f"stopped ({how})"
    if failure.kind == "exception" and failure.signal is None and code < 0:
        return f"failed ({failure.type}; then {how})"
    if failure.kind == "abort-at-exit":
        return f"finished, then aborted ({how})"
    return f"killed ({how})" if failure.kind == "signal" else f"failed ({how})"
