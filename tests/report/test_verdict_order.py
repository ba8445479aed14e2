"""The order of findings: what explains another one stands before it."""

from distdbg.diagnosis.verdict import explain, order
from distdbg.model import CauseClass, Finding

LEAK = Finding("memory-leak", "warning", "certain", "rank 2 keeps more", ranks=(2,))
KEPT = Finding("memory-leak", "warning", "possible", "rank 2 keeps a list", ranks=(2,))
OTHER = Finding("memory-leak", "warning", "certain", "rank 5 keeps more", ranks=(5,))
LOST = Finding("nccl-error", "error", "likely", "ranks 0-1", ranks=(0, 1), cause_class=CauseClass.COMMUNICATION)


def out_of_memory(**more):
    return Finding("cuda-oom", "error", "certain", "rank 2", ranks=(2,), cause_class=CauseClass.UNCAUGHT_ERROR, **more)


def in_order(findings):
    return [(f.id, f.ranks, f.severity, f.explained_by) for f in explain(order(findings))]


def test_what_explains_an_error_is_an_error_and_stands_before_it():
    assert in_order([KEPT, OTHER, LOST, LEAK, out_of_memory(explained_by="memory-leak")]) == [
        ("memory-leak", (2,), "error", None),
        ("memory-leak", (2,), "error", None),
        ("cuda-oom", (2,), "error", "memory-leak"),
        ("nccl-error", (0, 1), "error", "memory-leak"),
        ("memory-leak", (5,), "warning", None),
    ]
    assert order([KEPT, LEAK, out_of_memory(explained_by="memory-leak")])[0].confidence == "certain"


def test_what_explains_nothing_stays_where_it_was():
    assert in_order([LEAK, LOST, out_of_memory()]) == [
        ("cuda-oom", (2,), "error", None),
        ("nccl-error", (0, 1), "error", "cuda-oom"),
        ("memory-leak", (2,), "warning", None),
    ]
