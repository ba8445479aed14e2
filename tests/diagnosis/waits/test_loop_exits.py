"""The loop that some ranks have left and others have not, and what leaves it, by the lines that they stand in."""

import pytest

from distdbg.diagnosis.waits.branches import RankLines
from distdbg.diagnosis.waits.loop_exits import find_loop_exit
from distdbg.evidence.stacks.threads import Frame

BREAK = """\
for step in range(1000):
    loss = backward()
    for part in parts:
        if part: break
    if loss > 2:
        break
dist.barrier()
"""
EPOCHS = """\
for epoch in range(epochs):
    for batch in loader:
        backward()
    dist.all_reduce(total)
"""
CALLED = """\
def train(loader):
    for batch in loader:
        if bad(batch):
            return
        backward()

train(loader)
dist.barrier()
"""
CAUGHT = """\
try:
    while True:
        backward()
except OSError:
    log()
dist.barrier()
"""
NEXT_EPOCH = """\
for epoch in range(epochs):
    dist.barrier()
    for batch in loader:
        backward()
"""


def find(source, left, inside):
    """Lines of one script, the innermost first, each with its function."""
    frames = {
        rank: [Frame(name, "train.py", line) for line, name in stack] for rank, stack in enumerate((left, inside))
    }
    return find_loop_exit(RankLines(frames, {}, {"train.py": source}), (0,), (1,))


def main(*lines):
    return [(line, "<module>") for line in lines]


@pytest.mark.parametrize(("source", "left", "inside", "line", "ways", "may_end"), [
    (BREAK, main(7), main(2), 1, [(6, "break", "if loss > 2")], False),
    (EPOCHS, main(4), main(3), 2, [], True),
    (CALLED, main(8), [(5, "train"), *main(7)], 2, [(4, "return", "if bad(batch)")], True),
    (CAUGHT, main(6), main(3), 2, [(4, "except OSError", "")], False),
], ids=["break", "end of the iterator", "return of a function", "exception"])  # fmt: skip
def test_loop_that_one_side_has_left(source, left, inside, line, ways, may_end):
    found = find(source, left, inside)
    assert (found.left, found.inside, found.line, found.may_end) == ((0,), (1,), line, may_end)
    assert [(way.line, way.text, way.condition) for way in found.ways] == ways
    other_way = find(source, inside, left)
    assert (other_way.left, other_way.inside) == ((1,), (0,))


@pytest.mark.parametrize(("source", "left", "inside"), [
    (NEXT_EPOCH, main(2), main(4)),
    (BREAK, main(5), main(2)),
    ("x = 1\ndist.barrier()\n", main(2), main(1)),
    ("no python (", main(2), main(1)),
    ("", main(2), main(1)),
], ids=["before the loop", "both inside", "no loop", "not parsed", "no source"])  # fmt: skip
def test_nothing_is_said_without_a_loop_that_was_left(source, left, inside):
    assert find(source, left, inside) is None


def test_condition_that_is_nested_too_deeply_to_write_is_left_out():
    deep = " + ".join(["a"] * 1500)
    found = find(f"while {deep}:\n    backward()\n    if {deep}: break\ndist.barrier()\n", main(4), main(2))
    assert found.line == 1 and [way.line for way in found.ways] == [3]


def test_sides_of_many_ranks_are_compared_by_their_stacks():
    ranks = 16384
    frames = {rank: [Frame("<module>", "train.py", 7 if rank % 2 else 2)] for rank in range(ranks)}
    sides = tuple(range(0, ranks, 2)), tuple(range(1, ranks, 2))
    found = find_loop_exit(RankLines(frames, {}, {"train.py": BREAK}), *sides)
    assert (found.left, found.inside, found.line) == (sides[1], sides[0], 1)
