"""Which rank the others wait for, by profiles of the same steps."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.slow.straggler import straggler
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.places import TracePlace
from distdbg.evidence.trace.profile import CostlyPlace, OwnLine, RankProfile
from distdbg.evidence.trace.slow_rank import slow_ranks

PARTS = {"data wait": 0.0, "forward": 2e3, "backward": 3e3, "communication": 55e3, "optimizer": 500.0, "other": 0.0}
LINE = OwnLine("train.py", 12, "forward", 50e3)


def profile(rank, own=(5e3,) * 6, *, lines=(), first=20, **parts):
    labels = {str(first + n): us for n, us in enumerate(own)}
    return RankProfile(
        f"{rank}.json", rank, steps=len(own), step_us=60e3, parts={**PARTS, **parts}, own=labels, own_lines=lines
    )


def job(*slow, ranks=4):
    by_rank = {p.rank: p for p in slow}
    return [by_rank.get(rank, profile(rank)) for rank in range(ranks)]


SLOW = profile(2, (55e3,) * 6, lines=(LINE,), forward=52e3, communication=1e3)


def test_the_rank_its_phase_and_its_line_are_named():
    found = slow_ranks(job(SLOW))
    assert (found.ranks, found.phase, found.line, found.line_usual_us) == ((2,), "forward", LINE, 0.0)
    (finding,) = straggler.run(RunEvidence({}, 1, (), (), profiles=tuple(job(SLOW))))
    assert finding.id == "straggler" and finding.ranks == (2,) and "train.py:12 in forward" in finding.summary
    assert "52.00 ms" in finding.cause and "forward" in finding.cause and "2.00 ms" in finding.cause


def test_what_it_waits_for_a_processor_is_not_its_own():
    assert slow_ranks(job(SLOW)).us == 50e3
    assert slow_ranks(job(replace(SLOW, queued_us=10e3))).us == 40e3


def test_two_slow_ranks_of_eight_are_named_together():
    found = slow_ranks(job(SLOW, replace(SLOW, rank=5), ranks=8))
    assert found.ranks == (2, 5)


HEALTHY = {
    "by turns": [profile(r, tuple(55e3 if n % 4 == r else 5e3 for n in range(6)), lines=(LINE,)) for r in range(4)],
    "one long step": job(profile(2, (5e3, 5e3, 300e3, 5e3, 5e3, 5e3), lines=(LINE,))),
    "all alike": job(),
    "half of them": job(SLOW, replace(SLOW, rank=1), replace(SLOW, rank=3)),
    "a little": job(profile(2, (12e3,) * 6, lines=(replace(LINE, us=7e3),))),
    "the same line everywhere": [replace(p, own_lines=(LINE,)) for p in job(SLOW)],
    "it has lost its processor in the same place each time": job(replace(SLOW, queued_us=45e3)),
    "no line that tells": job(replace(SLOW, own_lines=())),
    "too few steps": [replace(p, own=dict(list(p.own.items())[:4])) for p in job(SLOW)],
    "other steps": job(profile(2, (55e3,) * 6, lines=(LINE,), first=90)),
    "one rank": [SLOW],
    "ranks that are not known": [replace(p, rank=None) for p in job(SLOW)],
}


@pytest.mark.parametrize("which", HEALTHY)
def test_nobody_is_named(which):
    assert slow_ranks(HEALTHY[which]) is None


def test_a_fault_that_this_rank_alone_has_tells_it_by_itself():
    costly = CostlyPlace("wait", TracePlace("train.py", 3, "forward", "item", 12), (12,), "", 900.0, 49e3, 49e3)
    assert list(straggler.run(RunEvidence({}, 1, (), (), profiles=tuple(job(replace(SLOW, costly=(costly,))))))) == []
    shared = tuple(replace(p, costly=(costly,)) for p in job(SLOW))
    assert [f.id for f in straggler.run(RunEvidence({}, 1, (), (), profiles=shared))] == ["straggler"]
    waiting = replace(SLOW, parts={**PARTS, "data wait": 50e3, "communication": 1e3}, data_us=50e3)
    assert list(straggler.run(RunEvidence({}, 1, (), (), profiles=tuple(job(waiting))))) == []
