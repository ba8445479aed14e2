"""Patterns that search text of others: 200,000 characters without a blank take no longer than 200,000 short words."""

import pytest

from distdbg.diagnosis.death import launch_failed
from distdbg.diagnosis.failures import exceptions as failure_exception
from distdbg.evidence.memory import stacks as memory_stacks

CASES = [
    (launch_failed._NO_TRACEBACK, "python"),
    (failure_exception._COMMUNICATION, "nccl"),
    (memory_stacks._NODE, "ackward"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("pattern", "part"), CASES, ids=[part for _, part in CASES])
def test_a_long_word(pattern, part):
    assert pattern.search(part * (200_000 // len(part)) + "!") is None


def test_what_they_find():
    assert launch_failed._NO_TRACEBACK.search("/x/bin/python3.11: can't open file 'a'")[3] == "can't open file 'a'"
    assert failure_exception._COMMUNICATION.search("torch.distributed.ncclUnhandledCudaError: x")
    assert memory_stacks._NODE.search("torch::autograd::generated::MmBackward0::apply")[1] == "MmBackward0"
    assert memory_stacks._NODE.search("torch::autograd::AccumulateGrad::apply")[1] == "AccumulateGrad"
