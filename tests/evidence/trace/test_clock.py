"""Clocks of hosts from collectives: bounds that hold, or no word at all."""

import random

import pytest

from distdbg.evidence.trace.clock import Collectives, HostClock, host_clock, words


def traces(offset, *, late=(300.0, 300.0), steps=20, op="gloo:all_reduce", wrong=False):
    """Two ranks in one collective a step; the second's clock is `offset` us behind. Who comes last changes."""
    rng = random.Random(7)
    ranks = Collectives(0.0), Collectives(0.0)
    for step in range(1, steps + 1):
        arrive = [step * 10_000 + rng.uniform(0, most) for most in late]
        over = max(arrive) + 50
        for which, (rank, begun) in enumerate(zip(ranks, arrive, strict=True)):
            shift = -offset * which + (900 * (step % 2) * which if wrong else 0)
            rank.see({"ph": "X", "name": f"distdbg:step {step}", "ts": (step * 10_000 - 1000) + shift, "dur": 9_000})
            rank.see({"ph": "X", "name": op, "cat": "user_annotation", "ts": begun + shift, "dur": over - begun,
                      "args": {"Input Dims": [[4]]}})  # fmt: skip
    return ranks


@pytest.mark.parametrize("op", ["gloo:all_reduce", "mpi:reduce_scatter"])
@pytest.mark.parametrize("offset", [0.0, 3_700.0, -41_000.0])
def test_an_offset_is_found_within_its_error(offset, op):
    found = host_clock("b", *traces(offset, op=op))
    assert found.offset_us is not None and abs(found.offset_us - offset) <= found.error_us < 200


ON_GPU = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
GROUP = {"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float", "Process Group Name": "0",
         "Process Group Ranks": "[0, 1]"}  # fmt: skip
STEP = 10_000.0


def gpu_traces(offset, *, ahead=(0, 0), steps=20, launches=(True, True), numbers=False, each=1):
    """As kineto writes them of CUDA: `each` all-reduces a step, which take the same time on both GPUs. The host of each
    rank is `ahead` by so many steps of its GPU; the second's clock is `offset` us behind."""
    rng = random.Random(7)
    ranks = Collectives(0.0), Collectives(0.0)
    for n in range(steps * each):
        step = n // each + 1
        arrive = [step * STEP + n % each * 1_000 + rng.uniform(0, 30) for _ in ranks]
        over = max(arrive) + 50
        for which, (rank, begun) in enumerate(zip(ranks, arrive, strict=True)):
            shift, correlation = -offset * which, 2 * n + which + 1
            called = (step - ahead[which]) * STEP - 500 + shift
            if n % each == 0:
                rank.see({"ph": "X", "name": f"distdbg:step {step}", "ts": called - 500, "dur": STEP})
            if launches[which]:
                rank.see({"ph": "X", "name": "cudaLaunchKernelExC", "cat": "cuda_runtime", "ts": called + n % each,
                          "dur": 5, "args": {"cbid": 430, "correlation": correlation}})  # fmt: skip
            more = {"Seq": n + 5} if numbers else {}
            rank.see({"ph": "X", "name": ON_GPU, "cat": "kernel", "ts": begun + shift, "dur": over - begun,
                      "args": {"correlation": correlation, "stream": 20, **GROUP, **more}})  # fmt: skip
    return ranks


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("ahead", [(0, 0), (0, 1), (0, 4), (2, 1)])
@pytest.mark.parametrize("offset", [0.0, -41_000.0])
def test_a_host_that_runs_ahead_of_its_gpu_is_not_taken_for_a_clock_that_does(offset, ahead, each, numbers):
    found = host_clock("b", *gpu_traces(offset, ahead=ahead, each=each, numbers=numbers))
    assert found.offset_us is not None and abs(found.offset_us - offset) <= found.error_us < 200


def test_numbers_alone_do_and_belong_to_a_group():
    found = host_clock("b", *gpu_traces(700.0, ahead=(0, 3), launches=(False, False), numbers=True))
    assert found.offset_us is not None and abs(found.offset_us - 700.0) <= found.error_us < 200
    ours, _ = gpu_traces(0.0, numbers=True)
    theirs = Collectives(0.0)
    other = {**GROUP, "Process Group Name": "1", "Process Group Ranks": "[1, 3]", "Seq": 5}
    theirs.see({"ph": "X", "name": ON_GPU, "cat": "kernel", "ts": STEP, "dur": 50, "args": other})
    assert host_clock("b", ours, theirs).offset_us is None


@pytest.mark.parametrize("launches", [(False, True), (True, False), (False, False)])
def test_kernels_that_nobody_knows_the_call_of_tell_nothing(launches):
    found = host_clock("b", *gpu_traces(0.0, ahead=(0, 1), launches=launches))
    assert found.offset_us is None and "kernels of NCCL's" in found.because
    assert words([HostClock("a", 0.0, 0.0), found]).startswith("clock error unknown")


def test_kernels_of_calls_before_the_trace_and_after_it_are_in_no_step():
    """The profiler begins and ends in the middle of a stream of work: what was launched before has no call in it."""
    ours, theirs = gpu_traces(900.0, ahead=(0, 1))
    ours.see({"ph": "X", "name": ON_GPU, "cat": "kernel", "ts": STEP - 4000, "dur": 30,
              "args": {"correlation": 9_999, **GROUP}})  # fmt: skip
    found = host_clock("b", ours, theirs)
    assert found.offset_us is not None and abs(found.offset_us - 900.0) <= found.error_us < 200


def test_one_that_always_comes_last_bounds_one_side_and_the_error_says_so():
    found = host_clock("b", *traces(1_000.0, late=(1.0, 4_000.0)))
    assert abs(found.offset_us - 1_000.0) <= found.error_us


def test_nothing_in_common_is_no_offset():
    ours, _ = traces(0.0)
    assert host_clock("b", ours, Collectives(0.0)).offset_us is None
    other, _ = traces(0.0, op="gloo:all_gather")
    assert "no collective of the same step" in host_clock("b", ours, other).because
    broadcast, theirs = traces(0.0, op="gloo:broadcast")
    assert host_clock("b", broadcast, theirs).offset_us is None, "who only sends does not wait"


def test_collectives_that_contradict_each_other_are_not_believed():
    found = host_clock("b", *traces(0.0, wrong=True))
    assert found.offset_us is None and "contradict" in found.because


def test_the_error_is_said_in_words():
    one = HostClock("a", 0.0, 0.0)
    assert words([one]).startswith("one host, one clock")
    assert words([one, HostClock("b", 9.0, 61.2)]).startswith("clock error up to 61 us between hosts")
    assert words([one, HostClock("b", None, because="x")]).startswith("clock error unknown")


@pytest.mark.parametrize("value", [None, "1", [], {}, 10**400, float("nan")])
def test_events_with_fields_of_other_types_stop_no_comparison(value):
    ranks = traces(3_700.0)
    for event in ({"ph": "X", "name": "gloo:all_reduce"}, {"ph": "X", "name": "x", "cat": "cuda_runtime"}, {"ph": "X"}):
        for field in ("ts", "dur", "args", "cat", "name"):
            ranks[0].see({**event, field: value})
    assert host_clock("b", *ranks).offset_us is not None
