"""Whom a rank waits for in send and recv, by the numbers of both sides."""

from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.transfers import open_transfer
from distdbg.evidence.recorder.calls import KEPT, NUMBERS, Call
from tests.hang_cases import c10d, evidence, made, recv, send, sleeps


def awaited(calls, rank=0, function="wait", peer=None, missing=None):
    """`calls` is {rank: its calls}."""
    dump = evidence({r: made(c10d("recv"), calls=c) for r, c in calls.items()}, missing=missing).dump
    found = open_transfer(Standing(rank, Doing.TRANSFER, "", function=function, peer=peer), dump)
    return found.what, found.awaited


def test_a_peer_that_has_not_done_its_part_is_waited_for():
    assert awaited({0: [send(1), recv(1)], 1: [recv(0)]}) == ("recv from rank 1", (1,))
    assert awaited({0: [send(1), recv(1)], 1: [send(0)]}) == ("send to rank 1", (1,))


def test_one_of_two_where_both_are_left():
    """One of them may have been begun long ago, for later."""
    calls = {0: [send(1), recv(2)], 1: [], 2: []}
    assert awaited(calls) == ("recv from rank 2 or send to rank 1", (1, 2))
    ranks = {0: made(c10d("recv"), calls=calls[0]), 1: sleeps(), 2: sleeps(line=17)}
    report = build_report(evidence(ranks))
    assert [(f.ranks, f.confidence) for f in report.findings if f.id == "stuck-in-python"] == [
        ((1,), "possible"),
        ((2,), "possible"),
    ]


def test_the_stack_says_which():
    calls = {0: [send(1), recv(2)], 1: [], 2: []}
    assert awaited(calls, function="recv", peer=2) == ("recv from rank 2", (2,))
    assert awaited(calls, function="isend", peer=1) == ("send to rank 1", (1,))
    assert awaited(calls, function="recv", peer=1) == ("recv from rank 2 or send to rank 1", (1, 2))


def test_nobody_where_all_have_done_their_part():
    """Sizes differ, or the network is cut."""
    assert awaited({0: [send(1)], 1: [recv(0)]}, function="send", peer=1) == ("send", ())


def test_a_send_and_a_receive_with_different_tags():
    calls = {0: [send(1, 1, tag=0), send(1, 2, tag=1)], 1: [recv(0, 1, tag=0), recv(0, 2, tag=2)]}
    assert awaited(calls, function="send", peer=1) == ("send to rank 1 with tag 1, begun at train.py:5", (1,))
    assert awaited(calls, rank=1, function="recv", peer=0)[1] == (0,)
    report = build_report(evidence({rank: made(c10d("recv"), calls=calls[rank]) for rank in calls}))
    assert [(f.id, f.ranks) for f in report.findings] == [("group-deadlock", (0, 1))]


def test_the_same_tags_in_another_order_are_no_mismatch():
    calls = {0: [send(1, 1, tag=7), send(1, 2, tag=8)], 1: [recv(0, 1, tag=8), recv(0, 2, tag=7)]}
    assert awaited(calls, function="send", peer=1) == ("send", ())


def test_tags_that_only_some_calls_have_recorded_say_nothing():
    assert awaited({0: [send(1, 1, tag=1)], 1: [recv(0, 1)]}, function="send", peer=1) == ("send", ())


def test_only_the_stack_speaks():
    assert awaited({0: [], 1: [], 2: []}, function="recv", peer=2) == ("recv from rank 2", (2,))


def test_a_receive_from_anybody_waits_for_all_others():
    calls = {0: [send(1), recv(None)], 1: [recv(0)], 2: []}
    assert awaited(calls, function="recv", missing={3: "gone"}) == ("recv from any rank", (1, 2, 3))


def test_a_receive_from_anybody_may_be_the_other_half_of_any_send():
    assert awaited({0: [send(1)], 1: [recv(None)]}, function="send", peer=1) == ("send", ())
    assert awaited({0: [send(1), send(1)], 1: [recv(None)]}, function="send", peer=1) == ("send to rank 1", (1,))


def test_numbers_outlive_what_a_ring_has_kept():
    """Rank 0 has one neighbour, rank 1 two: of as many calls each keeps another stretch of time."""
    mine = [recv(1, number=n) for n in range(9000 - KEPT + 1, 9001)]
    theirs = [call for n in range(9000 - KEPT // 2, 9001) for call in (send(0, number=n), send(2, number=n))][-KEPT:]
    assert awaited({0: mine, 1: theirs, 2: []}, function="recv", peer=1) == ("recv", ())
    ahead = [*mine[1:], recv(1, number=9001)]
    assert awaited({0: ahead, 1: theirs, 2: []}, function="recv", peer=1) == ("recv from rank 1", (1,))


def test_nobody_is_blamed_whose_calls_found_no_room():
    page = {"heard": 7, "quiet_s": 12.0, "step": 4, "calls": 3}
    ranks = {0: made(c10d("recv"), calls=[send(1)]), 1: made(c10d("recv"), page=page)}
    found = open_transfer(Standing(0, Doing.TRANSFER, "", function="send", peer=1), evidence(ranks).dump)
    assert (found.what, found.awaited) == ("send", ())


def test_numbers_begin_anew():
    assert awaited({0: [recv(1, number=1)], 1: [send(0, number=NUMBERS)]}) == ("recv from rank 1", (1,))
    assert awaited({0: [recv(1, number=NUMBERS)], 1: [send(0, number=1)]}) == ("wait", ())


def test_a_peer_whose_ring_has_forgotten_is_not_accused():
    forgotten = [Call(1, "all_reduce", "", 0, "")] * KEPT
    assert awaited({0: [recv(1, number=5)], 1: forgotten}) == ("wait", ())
    assert awaited({0: [recv(1, number=5)], 1: forgotten[1:]}) == ("recv from rank 1", (1,))
