"""Who waits for whom, and where the arrows end."""

import random

import pytest

from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.ends import find_ends
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.stacks.threads import Frame
from tests.hang_cases import C10D, SIGNATURES, blind, c10d, evidence, history, made, sleeps, stands_at, user, waits
from tests.made_dump import BOOT, SCRIPT, TORCH, frame, recorder, thread


def standing(rank, doing=Doing.COLLECTIVE):
    return Standing(rank, doing, "")


def ended(arrows, own=()):
    """`arrows` is [(waiting, awaited)]; ranks in `own` wait for nobody."""
    everybody = {r for waiting, awaited in arrows for r in (*waiting, *awaited)} | set(own)
    known = {r: standing(r, Doing.PYTHON if r in own else Doing.COLLECTIVE) for r in everybody}
    found = [Wait("x", tuple(w), tuple(a)) for w, a in arrows]
    random.Random(1).shuffle(found)
    return find_ends(found, known)


def test_a_chain_ends_at_who_waits_for_nobody():
    found = ended([([0], [1]), ([1], [2, 3]), ([2], [3])], own=[3])
    assert (found.sinks, found.circles) == ((3,), ())


def test_two_independent_ends():
    assert ended([([0, 3], [1, 2])], own=[1, 2]).sinks == (1, 2)


def test_a_circle():
    assert ended([([0], [1]), ([1], [2]), ([2], [0])]).circles == ((0, 1, 2),)


def test_a_circle_that_waits_for_somebody_else_is_none():
    found = ended([([0], [1]), ([1], [0, 2])], own=[2])
    assert (found.sinks, found.circles) == ((2,), ())


def test_two_circles():
    assert ended([([0], [1]), ([1], [0]), ([2], [3]), ([3], [2])]).circles == ((0, 1), (2, 3))


def test_a_wait_that_lacks_nobody_is_complete():
    found = ended([([0, 1], []), ([2], [0])])
    assert (found.sinks, found.circles, [w.waiting for w in found.complete]) == ((), (), [(0, 1)])


def test_an_unfinished_transfer_whose_peer_is_not_known_is_no_end():
    """Its own doing says that it waits for ranks: it is no culprit."""
    found = find_ends([Wait("x", (0,), (1,))], {0: standing(0), 1: standing(1, Doing.TRANSFER)})
    assert (found.sinks, found.circles) == ((), ())


def test_a_long_chain_is_no_recursion():
    arrows = [([n], [n + 1]) for n in range(16_384)]
    assert ended(arrows, own=[16_384]).sinks == (16_384,)


def found_waits(ranks, **options):
    return {(w.waiting, w.awaited, w.sequence) for w in hang_of(evidence(ranks, **options)).waits}


def test_the_same_operation_is_one_wait():
    ranks = {0: waits(9), 1: waits(9), 2: sleeps(8), 3: waits(9)}
    assert found_waits(ranks) == {((0, 1, 3), (2,), 9)}


def test_a_member_that_never_used_a_group_has_not_come():
    first = history(1, waiting=True, group="7", first=1)
    ranks = {r: made(c10d("all_reduce"), log=recorder(SIGNATURES, history(8, waiting=False), first)) for r in (0, 1)}
    members = {r: {"7": (0, 1, 2)} for r in range(3)}
    assert found_waits(ranks | {2: sleeps(8), 3: sleeps(8)}, members=members) == {((0, 1), (2,), 1)}


def test_of_several_open_operations_the_one_that_the_stack_names():
    """A broadcast in the background is open, too, and older."""
    ranks = {r: waits(9, groups=[("1", [("broadcast", 20.0, False)], 3)]) for r in range(3)}
    assert {w[2] for w in found_waits(ranks | {3: sleeps(8)})} == {9}
    ranks = {r: waits(9, groups=[("1", [("all_reduce", 5.0, False)], 3)]) for r in range(3)}
    assert {w[2] for w in found_waits(ranks | {3: sleeps(8)})} == {3}, "the newer one, where both bear its name"


def test_the_line_says_which_group_where_another_thread_waits_in_another_one():
    """The thread's operation is newer, and of the same name."""
    groups = [("1", [("all_reduce", 12.0, False)], 7), ("2", [("all_reduce", 10.0, False)], 2)]
    members = {r: {"1": (0, 1), "2": (0, 2)} for r in range(3)}
    mine, its = (Call(1, "all_reduce", SCRIPT, 26, "f", group="1"), Call(2, "all_reduce", SCRIPT, 12, "g", group="2"))
    listens = (*c10d("all_reduce", 12)[:3],)

    def found(calls, frames=c10d("all_reduce")):
        log = recorder(SIGNATURES, history(8, waiting=False), *groups)
        threads = [lambda pid: thread(pid, listens, os_id=pid + 1, name="listen")]
        first = made(frames, log=log, calls=calls, threads=threads)
        return found_waits({0: first, 1: sleeps(8), 2: sleeps(8)}, members=members)

    assert found([mine, its]) == {((0,), (1,), 7)}
    backward = (frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979), user(30), *BOOT)
    assert found([its], backward) == {((0,), (1,), 7)}, "C++ began it, and the other is the thread's"
    assert found([]) == {((0,), (2,), 2)}, "nothing tells them apart but their age"


def test_two_groups_of_one_name_are_two():
    """Meshes may call each row the same."""
    row = [("all_reduce", 12.0, False)]
    log = {r: recorder(SIGNATURES, history(8, waiting=False), ("tp", row, 4)) for r in (0, 2)}
    ranks = {r: made(c10d("all_reduce"), log=log[r]) for r in (0, 2)} | {1: sleeps(8), 3: sleeps(8)}
    members = {0: {"tp": (0, 1)}, 1: {"tp": (0, 1)}, 2: {"tp": (2, 3)}, 3: {"tp": (2, 3)}}
    assert found_waits(ranks, members=members) == {((0,), (1,), 4), ((2,), (3,), 4)}
    known = groups(evidence(ranks, members=members).dump, {r.rank: r for r in evidence(ranks, members=members).ranks})
    assert [g.ranks for g in known if g.name == "tp"] == [(0, 1), (2, 3)]


def test_a_rank_without_a_recorder_that_stands_elsewhere_is_waited_for():
    ranks = {0: waits(9), 1: waits(9), 2: sleeps(8, log=False)}
    assert found_waits(ranks) == {((0, 1), (2,), 9)}


def test_a_rank_without_a_recorder_that_waits_in_the_same_function_has_come():
    assert found_waits({0: waits(9), 1: blind(), 2: waits(9)}) == {((0, 2), (), 9), ((1,), (), None)}
    assert found_waits({0: waits(9), 1: blind("barrier"), 2: waits(9)}) == {((0, 2), (1,), 9), ((1,), (0, 2), None)}


def test_a_group_that_is_formed_lacks_who_has_not_come():
    ranks = {0: made(c10d("new_group")), 1: made(c10d("new_group")), 2: sleeps(8)}
    assert found_waits(ranks) == {((0, 1), (2,), None)}


def forms(members, split_from="None"):
    known = {"global_ranks_in_group": members, "split_from": split_from}
    top = Frame("_new_process_group_helper", C10D, 2190, known)
    return made((top, *c10d("new_group")))


@pytest.mark.parametrize(
    ("members", "split_from", "awaited"),
    [
        ("[0, 1]", "None", (1,)),
        ("[0, 1, 2]", "None", (1, 2)),
        ("[]", "None", (1, 2, 3)),
        ("[0, 1, ...]", "None", (1, 2, 3)),
        ("[0, 1]", "<ProcessGroupNCCL at 0x7f00>", (1, 2, 3)),
    ],
)
def test_a_group_is_formed_by_its_members_where_they_are_known(members, split_from, awaited):
    ranks = {0: forms(members, split_from), 1: sleeps(8), 2: sleeps(8), 3: sleeps(8)}
    assert found_waits(ranks) == {((0,), awaited, None)}


def test_two_ranks_that_form_different_groups_have_not_come():
    assert found_waits({0: forms("[0, 1]"), 1: forms("[1, 2]"), 2: sleeps(8)}) == {
        ((0,), (1,), None),
        ((1,), (2,), None),
    }
    assert found_waits({0: forms("[0, 1]"), 1: forms("[0, 1]"), 2: sleeps(8)}) == {((0, 1), (), None)}


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_ranks_does_not_matter(seed):
    ranks = {0: waits(9), 1: waits(9), 2: sleeps(8), 3: waits(9, operation="barrier"), 4: stands_at(None), 5: blind()}
    items = list(ranks.items())
    random.Random(seed).shuffle(items)
    hang, plain = hang_of(evidence(dict(items))), hang_of(evidence(ranks))
    assert {(tuple(sorted(w.waiting)), w.awaited) for w in hang.waits} == {
        (tuple(sorted(w.waiting)), w.awaited) for w in plain.waits
    }
