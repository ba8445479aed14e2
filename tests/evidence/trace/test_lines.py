"""The line of a call, where a trace knows the function and the name alone."""

import pytest

from distdbg.evidence.trace.lines import lines_of
from distdbg.evidence.trace.places import TracePlace

SOURCE = """\
import torch

@torch.no_grad()
def evaluate(model):
    def inner():
        return other.item()
    first = model.a.item()
    return (
        model
        .b
        .tolist()
    )

class Trainer:
    def step(self, loss):
        if float(loss) > 1:
            return loss.item()
        return self.item(loss.item())

values = [one.item() for one in torch.zeros(3)]
total = sum(one.cpu() for one in values)
"""


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        (TracePlace("t.py", 3, "evaluate", "item"), (7,)),  # Python has a function begin at its decorator
        (TracePlace("t.py", 9, "evaluate", "item"), (7,)),  # or where it stood
        (TracePlace("t.py", 3, "evaluate", "tolist"), (11,)),
        (TracePlace("t.py", 5, "inner", "item"), (6,)),
        (TracePlace("t.py", 15, "step", "item"), (17, 18)),
        (TracePlace("t.py", 15, "step", ""), (16,)),
        (TracePlace("t.py", 20, "<module>", "item"), (20,)),
        (TracePlace("t.py", 20, "<listcomp>", "item"), (20,)),
        (TracePlace("t.py", 21, "<genexpr>", "cpu"), (21,)),
        (TracePlace("t.py", 1, "evaluate", "item"), ()),  # another version of the file
        (TracePlace("t.py", 15, "other", "item"), ()),
    ],
)
def test_lines(place, lines):
    assert lines_of(SOURCE, place, "wait") == lines


def test_a_source_that_is_none():
    assert lines_of("def broken(:", TracePlace("t.py", 1, "broken", "item")) == ()
