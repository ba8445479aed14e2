"""Jobs that distdbg did not start, by stacks alone: slow ones, that are at one line in each look, are not stuck."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.dump import Look
from distdbg.protocol.dump import ProcessState
from tests.hang_cases import blind, evidence, roots, sleeps


def strange(make, *, ran, **process):
    """A rank without a heartbeat page in four looks, whose main thread left a CPU `ran` times between two of them. Each
    look pauses it, which counts two."""

    def build(rank):
        dump = make(rank)
        looks: list[Look] = []
        for number in range(4):
            switches = 100 + number * (ran + 2)
            state = ProcessState(**{**dump.looks[0].process.fields(), **process})
            one = replace(dump.looks[0], t=float(number), page=None, process=state)
            looks.append(replace(one, switched=switches, rested=switches + 2 if number < 3 else None))
        return replace(dump, looks=tuple(looks))

    return build


WAITS, SLEEPS = blind(page=None), sleeps(log=False, page=None)


def judged(*ranks):
    return evidence(dict(enumerate(ranks)), reason="asked", quiet_s=None)


def test_a_rank_that_waits_for_good_does_not_run():
    run = judged(strange(WAITS, ran=0), strange(SLEEPS, ran=0))
    assert hang_of(run).moved == ()
    assert roots(build_report(run)) == [("stuck-in-python", (1,))]


def test_a_culprit_that_polls_runs_and_is_named_all_the_same():
    run = judged(strange(WAITS, ran=0), strange(SLEEPS, ran=5))
    assert roots(build_report(run)) == [("stuck-in-python", (1,))]


def test_one_that_waits_in_one_collective_after_the_other_is_slow():
    run = judged(strange(WAITS, ran=2), strange(SLEEPS, ran=2))
    assert hang_of(run).moved == (0,)
    assert build_report(run).findings == ()


@pytest.mark.parametrize("process", [{"nccl": True}, {"syscall": "poll"}])
def test_a_wait_that_may_run_says_nothing(process):
    """On a device it polls or spins."""
    assert hang_of(judged(strange(WAITS, ran=50, **process), strange(SLEEPS, ran=0))).moved == ()


def test_where_nobody_waits_ranks_that_run_may_just_be_slow():
    (found,) = build_report(judged(strange(SLEEPS, ran=3), strange(SLEEPS, ran=3))).findings
    assert (found.id, found.severity, found.confidence) == ("stuck-in-python", "warning", "possible")
    assert "may be slow" in found.cause
    (found,) = build_report(judged(strange(SLEEPS, ran=0), strange(SLEEPS, ran=0))).findings
    assert (found.severity, found.confidence) == ("error", "likely")
