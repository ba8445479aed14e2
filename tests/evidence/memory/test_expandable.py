"""What the allocator would have reserved with expandable segments.

The real allocator, on simulated devices, reserved 98.0 MiB for three steps of launch/fsdp.py on two ranks, as is
computed from a run without them (82.0 MiB).
"""

import pytest

from distdbg.evidence.memory.analysis import analyse
from tests.made_snapshot import MIB, Made, snapshot


def expandable_reserved(made):
    (answer,) = analyse(snapshot(made))
    return answer.expandable_reserved


@pytest.mark.parametrize("form", ["old", "new"])
def test_pieces_become_one(form):
    made = Made(form=form)
    ones = [made.alloc(30 * MIB) for _ in range(2)]
    for one in ones:
        made.free(one)
    made.alloc(60 * MIB)
    assert made.reserved == 120 * MIB and expandable_reserved(made) == 60 * MIB


def test_the_smallest_hole_that_fits_is_taken_and_the_rest_stays_free():
    made = Made()
    blocks = [made.alloc(size * MIB) for size in (40, 20, 60)]
    made.free(blocks[0])
    made.alloc(12 * MIB)
    made.alloc(28 * MIB)
    assert expandable_reserved(made) == 120 * MIB
    made.free(blocks[2])
    made.alloc(70 * MIB)
    assert expandable_reserved(made) == 140 * MIB, "the range grows behind the hole at its end, by whole pages"


def test_streams_pools_and_small_requests_are_apart():
    made = Made()
    made.alloc(20 * MIB)
    made.alloc(20 * MIB, stream=7)
    made.alloc(20 * MIB, pool=(1, 0))
    made.alloc(100)
    assert expandable_reserved(made) == 62 * MIB


def test_what_stood_before_makes_it_unknown():
    late, known = Made(), Made(expandable=True)
    late.recording = False
    late.alloc(30 * MIB)
    late.recording = True
    for made in (late, known):
        made.alloc(30 * MIB)
        assert expandable_reserved(made) is None
