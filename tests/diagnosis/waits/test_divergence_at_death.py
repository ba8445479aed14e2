"""Ranks that gloo ended because they came with different operations: the `if` about the rank that parts them."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.recorder.log import Signatures
from tests.made_dump import made_dump, rank_dump, recorder
from tests.made_run import GLOO_LOST, MadeRun

SCRIPT = "/home/me/train.py"
TOO_MUCH = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 72 vs 4. Received data size doesn't match"
#: line 81 runs on rank 0 alone, with the same call in the else branch on line 83; 85 on rank 0 alone, 88 on all
TEXT = {
    80: "if rank == 0:", 81: "    all_reduce(a)", 82: "else:", 83: "    all_reduce(b)",
    84: "if rank == 0:", 85: "    all_reduce(loss)", 88: "loss.backward()",
    90: "if rank == 0:", 91: "    raise OSError", 92: "all_reduce(a)",
}  # fmt: skip
SOURCE = "\n".join(TEXT.get(n, "") for n in range(1, 100))


def call(line, size, **options):
    return Call(1, "all_reduce", SCRIPT, line, "step", number=6, size=size, dtype="float32", **options)


def root(tmp_path, ends, calls, source=SOURCE):
    """`ends`: by rank the message and line of its error; `calls`: its newest call."""
    run = MadeRun(tmp_path)
    for rank, (message, line) in ends.items():
        run.raises(rank, "RuntimeError", message, t=9.0 + rank / 100, line=line)
    run.rest(-15, t=11.0, asked=9.5)
    ranks = {r: replace(rank_dump(r), calls=(calls[r],) if r in calls else ()) for r in range(4)}
    dump = replace(made_dump(ranks), reason="death", sources={SCRIPT: source})
    return build_report(replace(run.closes().evidence(), dump=dump)).findings[0]


def test_a_reduction_of_rank_0_meets_the_backward_of_the_others(tmp_path):
    found = root(tmp_path, {0: (TOO_MUCH, 85), 1: (GLOO_LOST, 88), 2: (GLOO_LOST, 88)}, {0: call(85, 1)})
    assert (found.id, found.ranks, found.confidence) == ("rank-conditional-collective", (0,), "likely")
    assert "train.py:84" in found.summary
    assert "train.py:85" in found.summary


@pytest.mark.parametrize(
    ("ends", "calls"),
    [
        pytest.param({0: (GLOO_LOST, 85), 1: (GLOO_LOST, 88)}, {0: call(85, 1)}, id="nobody got too much"),
        pytest.param({0: (TOO_MUCH, 85), 1: (GLOO_LOST, 88)}, {0: call(85, 1, group="1")}, id="a group of some ranks"),
        pytest.param({0: (TOO_MUCH, 85), 1: (GLOO_LOST, 88)}, {0: call(70, 1)}, id="a wait for an earlier call"),
        pytest.param({0: (TOO_MUCH, 81), 1: (GLOO_LOST, 83)}, {0: call(81, 1)}, id="both branches call it"),
        pytest.param({0: (TOO_MUCH, 88), 1: (GLOO_LOST, 88)}, {0: call(88, 1)}, id="no branch"),
        pytest.param({0: (TOO_MUCH, 88), 1: (GLOO_LOST, 92)}, {0: call(88, 1), 1: call(92, 64)}, id="the others do"),
    ],
)
def test_lines_that_name_nobody(tmp_path, ends, calls):
    assert root(tmp_path, ends, calls).id != "rank-conditional-collective"


def test_another_size_in_a_branch_of_its_own(tmp_path):
    calls = {0: call(85, 1), 1: call(88, 64), 2: call(88, 64), 3: call(88, 64)}
    found = root(tmp_path, {0: (TOO_MUCH, 85), 1: (GLOO_LOST, 88)}, calls)
    assert (found.id, found.ranks, found.confidence) == ("rank-conditional-collective", (0,), "certain")
    assert "train.py:84" in found.summary


@pytest.mark.parametrize(
    ("others", "ranks", "confidence"),
    [({1, 2, 3}, (0,), "certain"), ({2, 3}, (0, 1, 2, 3), "certain"), ({1, 2}, (0,), "likely")],
    ids=["rank 0 is the few", "two of each", "rank 3 had not come"],
)
def test_another_size_where_both_branches_make_the_call(tmp_path, others, ranks, confidence):
    calls = {0: call(81, 65), 1: call(81, 65)} | {rank: call(83, 64) for rank in others}
    found = root(tmp_path, {0: (GLOO_LOST, 81), 2: (TOO_MUCH, 83)}, calls)
    assert (found.id, found.ranks, found.confidence) == ("collective-shape-mismatch", ranks, confidence)
    assert "train.py:80" in found.cause


@pytest.mark.parametrize(("world", "ranks", "confidence"), [(3, (2,), "certain"), (2, (0, 1), "certain")])
@pytest.mark.parametrize("done", [True, False])
def test_who_expected_less_than_all_others(tmp_path, world, ranks, confidence, done):
    """gloo marks an operation that failed as finished. Of two ranks either may be wrong: gloo ends only one."""
    run, signatures, apart = MadeRun(tmp_path, ranks=world, nodes=1), Signatures(), world - 1
    run.raises(apart, "RuntimeError", TOO_MUCH, t=9.0, line=70)
    had = {apart: replace(rank_dump(apart), calls=(call(70, 2),))}
    for rank in range(apart):
        run.raises(rank, "RuntimeError", GLOO_LOST, t=9.1, line=71)
        log = recorder(signatures, ("0", [("all_reduce", 3, True), ("all_reduce", 1, done)], 1))
        had[rank] = rank_dump(rank, recorder=log)
    dump = replace(made_dump(had, signatures=signatures), reason="death", sources={SCRIPT: SOURCE})
    report = build_report(replace(run.closes().evidence(), dump=dump))
    found = report.findings[0]
    assert (found.id, found.ranks, found.confidence) == ("collective-mismatch", ranks, confidence)


@pytest.mark.parametrize(("number", "named"), [(6, (0, 1)), (5, (1,))])
def test_a_receive_of_less_than_was_sent(tmp_path, number, named):
    """Line 85 is in a branch of rank 0 alone, which says nothing of who has the wrong size."""
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.1, line=92)
    run.raises(1, "RuntimeError", TOO_MUCH, t=9.0, line=88)
    send = Call(1, "isend", SCRIPT, 85, "step", peer=1, number=number)
    recv = Call(1, "irecv", SCRIPT, 88, "step", peer=0, number=6)
    ranks = {0: replace(rank_dump(0), calls=(send, call(92, 1))), 1: replace(rank_dump(1), calls=(recv,))}
    dump = replace(made_dump(ranks), reason="death", sources={SCRIPT: SOURCE})
    found = build_report(replace(run.closes().evidence(), dump=dump)).findings[0]
    assert (found.id, found.ranks) == ("collective-shape-mismatch", named)
    assert ("train.py:85" in found.summary) == (len(named) == 2)


@pytest.mark.parametrize(("line", "ranks"), [(71, (0, 1, 2, 3)), (72, (2,))])
def test_a_dead_rank_without_a_recorder_is_on_the_side_whose_call_it_made(tmp_path, line, ranks):
    """Two against two names nobody; one that was elsewhere counts for no side."""
    run, signatures = MadeRun(tmp_path), Signatures()
    had = {}
    for rank in range(4):
        at, operation = (70, "all_reduce") if rank < 2 else (71 if rank == 2 else line, "barrier")
        run.raises(rank, "RuntimeError", TOO_MUCH if rank == 3 else GLOO_LOST, t=9.0 + (rank < 3), line=at)
        log = recorder(signatures, ("0", [("all_reduce", 3, True), (operation, 1, False)], 5))
        had[rank] = rank_dump(rank, recorder=log if rank < 3 else None)
        had[rank] = replace(had[rank], calls=(Call(rank + 1, operation, SCRIPT, at, "step", number=6),))
    dump = replace(made_dump(had, signatures=signatures), reason="death", sources={SCRIPT: SOURCE})
    found = build_report(replace(run.closes().evidence(), dump=dump)).findings[0]
    assert (found.id, found.ranks) == ("collective-mismatch", ranks)
