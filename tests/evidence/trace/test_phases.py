"""A step's time among its phases: where a forward begins, and what lies between it and the batch before it."""

import pytest

from distdbg.evidence.trace.events import ProfileTrace
from distdbg.evidence.trace.marks import BACKWARD, COMPUTING, FORWARD, LOADER, OPTIMIZER, TRACK
from distdbg.evidence.trace.phases import PARTS, find_phases, find_steps
from tests.evidence.trace.cuda_trace import CudaTrace

STEP = 10_000.0
STEPS = 5


def parts(inside):
    """us of each part of a typical step; `inside(built, at)` says what is in each of them, its step's mark aside."""
    built, trace = CudaTrace(), ProfileTrace()
    for n in range(STEPS):
        built.host("user_annotation", f"distdbg:step {n + 1}", n * STEP, STEP, tid=TRACK)
        inside(built, n * STEP)
    for event in built.events:
        trace.add(event)
    trace.arranged()
    steps = find_steps(trace)
    phases = find_phases(trace, steps)
    found = [phases.parted(step) for step in steps.typical]
    assert all(sum(one.values()) == pytest.approx(STEP) and tuple(one) == PARTS for one in found)
    return {name: round(sum(one[name] for one in found) / len(found)) for name in PARTS if any(o[name] for o in found)}


def mark(built, name, begin, until):
    built.host("user_annotation", name, begin, until - begin, tid=TRACK)


def step_of(built, at, *, batch=True, marked=True, torchs=False):
    """A batch at 1000, moved at 2000 and waited over; the forward at 4000, the loss at 6000, the backward at 7000."""
    if batch and torchs:
        built.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 1000)
    elif batch:
        mark(built, LOADER, at, at + 1000)
        mark(built, COMPUTING, at + 1000, at + (4000 if marked else 7000))
    built.host("cpu_op", "aten::to", at + 2000, 100)
    if marked and torchs:
        built.host("user_annotation", "DistributedDataParallel.forward", at + 4000, 2000)
    elif marked:
        mark(built, FORWARD, at + 4000, at + 6000)
        mark(built, COMPUTING, at + 6000, at + 7000)
    built.host("cpu_op", "aten::linear", at + 4500, 1000)
    built.host("cpu_op", "aten::mse_loss", at + 6300, 100)
    mark(built, BACKWARD, at + 7000, at + 9000)
    mark(built, OPTIMIZER, at + 9000, at + 9500)


AFTER = {"backward": 2000, "optimizer": 500}


def test_from_a_batch_to_the_forward_that_is_heard_is_preparing_and_the_loss_is_forward():
    assert parts(step_of) == {"data wait": 1000, "preparing": 3000, "forward": 3000, **AFTER, "other": 500}


def test_without_a_forward_that_is_heard_it_begins_at_the_first_operator():
    found = parts(lambda built, at: step_of(built, at, marked=False))
    assert found == {"data wait": 1000, "preparing": 1000, "forward": 5000, **AFTER, "other": 500}


def test_without_a_batch_nobody_knows_what_came_before_the_forward():
    assert parts(lambda built, at: step_of(built, at, batch=False)) == {"forward": 3000, **AFTER, "other": 4500}
    found = parts(lambda built, at: step_of(built, at, batch=False, marked=False))
    assert found == {"forward": 5000, **AFTER, "other": 2500}


def test_traces_of_torch_alone_tell_it_too():
    found = parts(lambda built, at: step_of(built, at, torchs=True))
    assert found == {"data wait": 1000, "preparing": 3000, "forward": 3000, **AFTER, "other": 500}


def test_gradients_that_are_cleared_before_the_forward_are_no_part_of_it():
    def inside(built, at):
        step_of(built, at, marked=False)
        built.host("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", at + 1200, 300)
        built.host("cpu_op", "aten::zero_", at + 1250, 200)

    found = parts(inside)
    assert (found["preparing"], found["forward"], found["optimizer"], found["other"]) == (700, 5000, 800, 500)


def test_a_batch_that_no_backward_follows_is_other_and_a_forward_that_was_heard_is_one():
    def inside(built, at):
        mark(built, LOADER, at, at + 500)
        mark(built, COMPUTING, at + 500, at + 3000)
        built.host("cpu_op", "aten::argmax", at + 600, 100)
        mark(built, LOADER, at + 3000, at + 3500)
        mark(built, COMPUTING, at + 3500, at + 4000)
        mark(built, FORWARD, at + 4000, at + 5000)
        mark(built, OPTIMIZER, at + 9000, at + 9500)

    assert parts(inside) == {"data wait": 1000, "forward": 1000, "optimizer": 500, "other": 7500}


def test_on_a_gpu_preparing_is_what_it_launched_and_the_time_in_which_nothing_ran():
    def inside(built, at):
        step_of(built, at)
        built.launch("Memcpy HtoD (Pinned -> Device)", at + 2010, at + 2500, 300, category="gpu_memcpy")
        built.launch("gemm_forward", at + 4600, at + 4700, 2000)
        built.launch("gemm_backward", at + 7100, at + 7200, 4500)  # into the next step

    found = parts(inside)
    assert found["forward"] == 2000 and found["backward"] == 4500
    # of 1000 to 4000, what the backward of the step before has left of it
    assert found["preparing"] == 4000 - 1700 and "data wait" not in found
