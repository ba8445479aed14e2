"""Where in an FSDP2 model two ranks parted, by their calls."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.hang.diverged import ModulesApart, modules_apart
from distdbg.diagnosis.timeline.call_lines import ModelPlace
from distdbg.evidence.recorder.calls import Call
from tests.made_dump import made_dump, rank_dump


def had(rank, *modules, first=1):
    calls = [
        Call(n, "all_gather_single", "train.py", 1, "step", number=n, module=module, phase="forward")
        for n, module in enumerate(modules, first)
    ]
    return replace(rank_dump(rank), calls=tuple(calls))


LEFT_OUT = ModulesApart(3, ModelPlace("b.3", "forward"), ModelPlace("b.2", "forward"))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (("b.0", "b.1", "b.3"), ("b.0", "b.1", "b.2", "b.3"), LEFT_OUT),
        (("b.0", "b.1", "b.3"), ("b.0", "b.1", "", "b.3"), None),  # the other rank's is no collective of FSDP2
        (("b.0", "b.1"), ("b.0", "b.1", "b.2"), None),  # it has not come there
        (("b.2", "b.3"), ("b.0", "b.1"), None),  # when they parted is not kept
    ],
)
def test_the_first_module_that_differs(one, other, found):
    assert modules_apart(made_dump({0: had(0, *one), 1: had(1, *other)}), 0, 1) == found
