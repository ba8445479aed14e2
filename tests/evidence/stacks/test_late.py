"""Which line most samples of a late rank have; events are an agent's, of whatever quality."""

from distdbg.evidence.run import NodeRecord
from distdbg.evidence.stacks.late import sampled

TORCH = ["/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 700, "__next__"]


def late(line, *, rank=1, phase="data", for_ms=80.0, frames=None):
    user = ["/home/me/train.py", line, "read"]
    return {"event": "late", "rank": rank, "phase": phase, "for_ms": for_ms, "usual_ms": 10.0,
            "frames": [user, TORCH] if frames is None else frames, "source": f"line {line}"}  # fmt: skip


def node(*events):
    return NodeRecord(0, "a", events=tuple(enumerate(events, 1)), events_path="nodes/0000-a/events.jsonl")


def test_the_line_that_most_samples_have():
    found = sampled([node(late(9), late(12, for_ms=60.0), late(12, for_ms=70.0))], 1, "data")
    assert (found.frame.line, found.source, found.times, found.samples) == (12, "line 12", 2, 3)
    assert (found.for_ms, found.usual_ms) == (65.0, 10.0)
    assert [citation.line for citation in found.citations] == [2, 3]


def test_only_of_this_rank_in_this_phase():
    events = node(late(9, rank=2), late(9, phase="optimizer"), {"event": "metrics"})
    assert sampled([events], 1, "data") is None


def test_a_stack_without_a_line_of_the_users_tells_nothing():
    assert (
        sampled([node(late(9, frames=[TORCH]), late(9, frames="x"), late(9, frames=[["a.py", "9", "f"]]))], 1, "data")
        is None
    )
