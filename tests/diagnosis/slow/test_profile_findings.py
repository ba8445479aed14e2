"""Findings of profiles on ranks side by side: which of them are named, and what is too small to be one."""

from dataclasses import replace

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.events import ProfileTrace
from distdbg.evidence.trace.places import TracePlace
from distdbg.evidence.trace.profile import CostlyPlace, RankProfile, digest
from tests.evidence.trace.cuda_trace import CudaTrace

PLACE = TracePlace("/home/me/train.py", 20, "step", "", 33)
PARTS = dict.fromkeys(("data wait", "forward", "backward", "communication", "optimizer", "other"), 0.0)


def profile(rank, *costly, step_us=20e3):
    return RankProfile(f"{rank}.json", rank, steps=6, step_us=step_us, parts=PARTS, costly=costly)


def costly(kind, us, *, what="", calls=1.0, lines=(33,), count=0):
    return CostlyPlace(kind, PLACE, lines, what, calls, us, us, count=count)


def findings(*profiles):
    evidence = RunEvidence({}, 1, (), (), profiles=profiles)
    return [finding for rule in all_rules() for finding in rule.run(evidence)]


def test_ranks_that_wait_for_others_have_the_same_fault_in_longer_steps():
    ranks = [profile(0, costly("wait", 3e3, calls=900)), profile(1, costly("wait", 3e3, calls=900), step_us=90e3)]
    (finding,) = findings(*ranks, profile(2))
    assert finding.id == "sync-in-step" and finding.ranks == (0, 1) and "train.py:33 in step" in finding.summary
    assert "15% of the step" in finding.summary and "on rank 0" in finding.cause


def test_ranks_are_compared_with_the_least_of_those_where_it_is_costly():
    """One rank's reads may take much longer than the others', on a machine with too few CPUs."""
    waits = [profile(rank, costly("wait", us)) for rank, us in enumerate((12e3, 3e3, 0.5e3, 0.2e3))]
    (finding,) = findings(*waits)
    assert finding.ranks == (0, 1, 2)


def test_a_call_that_should_not_be_is_the_fault_of_ranks_where_it_is_fast_too():
    slow, fast = costly("attention", 9e3, what="[2, 2]"), costly("attention", 0.4e3, what="[2, 2]")
    (finding,) = findings(profile(0, replace(slow, fused="flash")), profile(1, replace(fast, fused="flash")))
    assert finding.id == "attention-not-fused" and finding.ranks == (0, 1)
    (finding,) = findings(profile(0, costly("wait", 9e3)), profile(1, costly("wait", 0.4e3)))
    assert finding.id == "sync-in-step" and finding.ranks == (0,)


def test_a_function_that_was_entered_elsewhere_is_the_same_place():
    other = replace(costly("wait", 3e3), place=PLACE._replace(line=24))
    (finding,) = findings(profile(0, costly("wait", 3e3)), profile(1, other))
    assert finding.ranks == (0, 1)


def test_buffers_are_large_and_costly_on_every_rank():
    large, small = costly("buffers", 4e3, count=4_000_000), costly("buffers", 4e3, count=513)
    (finding,) = findings(profile(0, large), profile(1, replace(large, us=6e3, gain_us=6e3)))
    assert finding.id == "buffers-broadcast" and finding.ranks == (0, 1)
    assert "4.0 million numbers" in finding.summary and "4.00 of 20.00 ms" in finding.cause
    assert findings(profile(0, small), profile(1, small)) == []
    assert findings(profile(0, large), profile(1, replace(large, us=50.0, gain_us=50.0))) == []
    assert findings(profile(0, large), profile(1)) == []


def test_data_parallel_is_named_whatever_it_costs():
    (finding,) = findings(profile(0, costly("parallel", 9.0)), profile(1, costly("parallel", 9.0)))
    assert finding.id == "data-parallel" and finding.ranks == (0, 1)


def test_a_loader_that_starts_its_workers_again():
    (finding,) = findings(profile(0, costly("workers", 8e3, count=3, calls=2.0)))
    assert (
        finding.id == "loader-restarts" and "4 workers" in finding.summary and "3 times in 6 steps" in finding.summary
    )


def test_a_mask_is_named_where_the_source_shows_that_it_is_causal():
    (finding,) = findings(profile(0, costly("masked", 3e3)))
    assert finding.id == "causal-mask-given"
    assert findings(profile(0, costly("masked", 3e3, lines=()))) == []


def test_a_loop_of_small_operators_is_a_tenth_of_a_step():
    (finding,) = findings(profile(0, costly("small", 3e3, calls=600.0)))
    assert finding.id == "small-kernels" and "600 operators" in finding.summary
    assert findings(profile(0, costly("small", 1.5e3, calls=300.0))) == []


def waiting(*waits_us):
    """Steps of 10 ms, of which the first so many are waited for their batch."""
    built, trace = CudaTrace(), ProfileTrace()
    for n, lasts in enumerate(waits_us):
        built.host("user_annotation", f"ProfilerStep#{n}", n * 10e3, 10e3)
        built.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", n * 10e3, lasts)
        built.host("cpu_op", "aten::linear", n * 10e3 + lasts, 100)
    for event in built.events:
        trace.add(event)
    return digest(trace, {}, "rank0.json", 0, lambda place, kind: ())


def test_the_first_batch_of_a_loader_alone_is_no_starving():
    """Its workers start for it, and a profile may have no other step to tell by."""
    assert [f.id for f in findings(waiting(8e3))] == []
    assert [f.id for f in findings(waiting(8e3, 20.0))] == []
    (finding,) = findings(waiting(8e3, 7e3))
    assert finding.id == "data-starved" and finding.confidence == "likely"
    assert finding.evidence[0].where == "2 steps, 0 to 1"


def test_what_only_the_first_of_two_steps_does_is_not_done_in_each():
    built, trace = CudaTrace(), ProfileTrace()
    built.frame("train.py", 20, "main", 0, 20e3)
    for n in range(2):
        built.host("user_annotation", f"ProfilerStep#{n}", n * 10e3, 10e3)
        built.host("cpu_op", "aten::linear", n * 10e3, 100)
    built.host("python_function", "<built-in method item of Tensor object at 0x7f>", 1e3, 4e3)
    built.host("cpu_op", "aten::item", 1e3, 4e3)
    for event in built.events:
        trace.add(event)
    assert findings(digest(trace, {}, "rank0.json", 0, lambda place, kind: (20,))) == []
