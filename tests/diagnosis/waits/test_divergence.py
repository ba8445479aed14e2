"""Why ranks came with different operations: the `if` that parts them, their loaders, their models, or none of these."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.divergence import divergence_of
from distdbg.diagnosis.waits.divergence_record import Kind
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.run import ExceptionFact, WithoutGradient
from tests.hang_cases import (
    SIGNATURES,
    blind,
    c10d,
    evidence,
    history,
    in_groups,
    made,
    roots,
    shuffled,
    sleeps,
    user,
    waits,
)
from tests.made_dump import BOOT, SCRIPT, TORCH, T, frame, recorder, thread


def source(**lines):
    """`line_7="x"` puts x on line 7 of the script."""
    placed = {int(name.removeprefix("line_")): text for name, text in lines.items()}
    return {SCRIPT: "\n".join(placed.get(n, "") for n in range(1, 41))}


#: line 4 runs on the main rank, line 6 on the others, line 26 on all
BRANCHES = source(
    line_3="if rank == 0:", line_4="    train(1)", line_5="else:", line_6="    train(2)", line_26="train(3)"
)


def at(number, operation, *lines, functions=()):
    """Waits in `operation`, called from these lines of the script, the innermost first."""
    names = dict(enumerate(functions))
    users = tuple(user(line, names.get(n, "<module>")) for n, line in enumerate(lines))
    stack = (*c10d(operation)[:2], *users, *BOOT)
    return made(stack, log=recorder(SIGNATURES, history(number, waiting=True, operation=operation)))


def found(ranks, **options):
    return divergence_of(evidence(ranks, **options))


@pytest.mark.parametrize("seed", range(4))
def test_the_if_that_parts_them(seed):
    ranks = {0: at(9, "barrier", 4), **dict.fromkeys((1, 2, 3), at(9, "all_reduce", 26))}
    diverged = found(shuffled(ranks, seed), sources=BRANCHES)
    assert (diverged.kind, diverged.ranks, diverged.others) == (Kind.RANK_CONDITIONAL, (0,), (1, 2, 3))
    assert (diverged.condition.text, diverged.condition.line, diverged.frame.line) == ("if rank == 0", 3, 4)


@pytest.mark.parametrize(("groups", "root"), [(1, ("collective-mismatch", (2,))), (2, ("group-deadlock", (0, 1, 2)))])
def test_circle_by_stacks_is_mismatch_if_each_rank_has_one_group(groups, root):
    ranks = {0: blind("all_reduce"), 1: blind("all_reduce"), 2: blind("barrier")}
    report = build_report(evidence({rank: in_groups(make, groups) for rank, make in ranks.items()}))
    assert roots(report) == [root]


def test_the_if_that_the_many_stand_in():
    ranks = {0: at(9, "barrier", 26), **dict.fromkeys((1, 2, 3), at(9, "all_reduce", 6))}
    diverged = found(ranks, sources=BRANCHES)
    assert (diverged.kind, diverged.ranks, diverged.condition.otherwise) == (Kind.RANK_CONDITIONAL, (0,), True)


def test_an_if_that_some_of_the_others_stand_in_as_well_parts_nobody():
    """Ranks 1 to 3 are in the else branch, and only rank 2 is in another collective."""
    many = at(9, "all_reduce", 26, 6, functions=("train",))
    ranks = {0: at(9, "all_reduce", 26, 4, functions=("log",)), 1: many, 3: many}
    ranks[2] = at(9, "barrier", 25, 6, functions=("skip",))
    assert found(ranks, sources=BRANCHES).kind is Kind.MISMATCH


def test_branches_that_call_the_same_function_part_nobody():
    """It is within that function that they part."""
    few = at(9, "barrier", 25, 4, functions=("train",))
    many = at(9, "all_reduce", 26, 6, functions=("train",))
    assert found({0: few, 1: many, 2: many, 3: many}, sources=BRANCHES).kind is Kind.MISMATCH
    other = at(9, "all_reduce", 26, 6, functions=("evaluate",))
    assert found({0: few, 1: other, 2: other, 3: other}, sources=BRANCHES).kind is Kind.RANK_CONDITIONAL


def test_a_call_that_the_other_branch_makes_as_well_parts_nobody():
    both = source(
        line_3="if rank == 0:",
        line_4="    dist.broadcast(stop, 0)",
        line_5="else:",
        line_6="    dist.broadcast(stop, 0)",
    )
    ranks = {0: at(9, "all_reduce", 2), 1: at(9, "all_reduce", 2), 2: at(9, "broadcast", 6)}
    assert found(ranks, sources=both).kind is Kind.MISMATCH
    once = source(line_3="if rank == 2:", line_4="    dist.barrier(); dist.barrier()", line_5="else:",
                  line_6="    dist.barrier()")  # fmt: skip
    ranks[2] = at(9, "barrier", 4)
    assert found(ranks, sources=once).kind is Kind.RANK_CONDITIONAL, "it makes one more"


@pytest.mark.parametrize("given", ["out", "[make() for _ in ranks]", "make()"])
def test_a_condition_about_an_argument_parts_nobody(given):
    line = source(line_3=f"dist.gather(loss, {given} if rank == 0 else None, dst=0)")
    ranks = {0: at(9, "all_reduce", 2), 1: at(9, "all_reduce", 2), 2: at(9, "gather", 3)}
    assert found(ranks, sources=line).kind is Kind.MISMATCH


def test_a_call_among_the_arguments_that_only_some_ranks_make():
    line = source(line_3="print(evaluate(model) if rank == 0 else None)")
    ranks = {0: at(9, "barrier", 30, 3), 1: at(9, "all_reduce", 2), 2: at(9, "all_reduce", 2)}
    assert found(ranks, sources=line).kind is Kind.RANK_CONDITIONAL


#: `if` above line 4; line 6 is its other branch, line 26 runs on all; who is apart: who stands in line 4 or the other
TIES = {
    ("if rank == 1:", 4): "in it",
    ("if rank == 1:", 6): "the other",
    ("if rank != 0:", 4): "the other",
    ("if rank:", 4): "the other",
    ("if rank > 0:", 4): "the other",
    ("if not is_main_process():", 4): "the other",
    ("if self.is_first_rank and step:", 4): "in it",
    ("if local_rank in (-1, 0):", 4): "in it",
    ("if rank % 2:", 4): "both",
    ("if rank < half:", 4): "both",
    ("if step == 1:", 4): "unknown",
}


@pytest.mark.parametrize(("condition", "line"), TIES)
@pytest.mark.parametrize("in_it", [(1,), (0,), (0, 3)])
def test_of_equally_many_those_are_apart_that_the_if_picks(condition, line, in_it):
    rest = (1, 2) if len(in_it) == 2 else (1 - in_it[0],)
    sources = source(line_3=condition, line_4="    train(1)", line_5="else:", line_6="    train(2)", line_26="train(3)")
    ranks = dict.fromkeys(in_it, at(9, "barrier", line)) | dict.fromkeys(rest, at(9, "all_reduce", 26))
    diverged = found(ranks, sources=sources)
    everybody = tuple(sorted((*in_it, *rest)))
    apart = {"in it": (in_it, rest), "the other": (rest, in_it)}.get(TIES[condition, line], (everybody, ()))
    assert (diverged.ranks, diverged.others, diverged.sure) == (*apart, False)
    assert (diverged.kind is Kind.RANK_CONDITIONAL) == (TIES[condition, line] != "unknown")


def test_both_branches_of_one_if_are_named():
    """A server and its client: each does what is meant for it, and which of the two is wrong is not known."""
    diverged = found({0: at(9, "barrier", 4), 1: at(9, "all_reduce", 6)}, sources=BRANCHES)
    assert (diverged.kind, diverged.ranks, diverged.others) == (Kind.RANK_CONDITIONAL, (0, 1), ())
    assert diverged.condition.line == 3


def test_an_if_for_each_side_picks_none():
    sources = source(line_3="if rank == 0:", line_4="    train(1)", line_8="if rank == 1:", line_9="    train(2)")
    diverged = found({0: at(9, "barrier", 4), 1: at(9, "all_reduce", 9)}, sources=sources)
    assert (diverged.kind, diverged.ranks, diverged.condition) == (Kind.MISMATCH, (0, 1), None)


def test_who_raised_is_apart_from_as_many_that_did_not():
    made_of = evidence({0: at(9, "barrier", 4), 1: at(9, "all_reduce", 26)}, sources=BRANCHES)
    error = ExceptionFact(1, "ValueError", "no batch", "", T, uncaught=False)
    ranks = (made_of.ranks[0], replace(made_of.ranks[1], handling=error))
    diverged = divergence_of(replace(made_of, ranks=ranks))
    assert (diverged.kind, diverged.ranks) == (Kind.MISMATCH, (1,))


def test_without_the_source_it_is_a_mismatch():
    ranks = {0: at(9, "barrier", 4), **dict.fromkeys((1, 2), at(9, "all_reduce", 26))}
    assert found(ranks).kind is Kind.MISMATCH
    assert found(ranks, sources={SCRIPT: "if rank ==:"}).kind is Kind.MISMATCH


def reduces(size, kind="Float"):
    entry = {
        "process_group": ["0", "default_pg"], "is_p2p": False, "collective_seq_id": 1, "timeout_ms": 1,
        "profiling_name": "gloo:all_reduce", "input_sizes": [[size]], "input_dtypes": [kind],
        "state": "scheduled", "retired": False, "time_created_ns": int((T - 12) * 1e9),
    }  # fmt: skip
    return read_recorder({"version": "2.10", "pg_config": {}, "entries": [entry]}, SIGNATURES)


def sized(size):
    return made(c10d("all_reduce"), log=reduces(size))


def test_only_sizes_differ():
    diverged = found({0: sized(64), 1: sized(64), 2: sized(32)})
    assert (diverged.kind, diverged.ranks) == (Kind.SHAPE, (2,))
    assert [s for s, _ in diverged.sides] == ["all_reduce float32[64]", "all_reduce float32[32]"]


def with_page(operation, **page):
    log = recorder(SIGNATURES, history(9, waiting=True, operation=operation))
    return made(c10d(operation), log=log, page={"heard": 7, "quiet_s": 12.0, "step": 4} | page)


def test_loaders_that_came_to_their_end():
    many = with_page("all_reduce", data_ends=0)
    diverged = found({0: many, 1: with_page("barrier", data_ends=1), 2: many})
    assert (diverged.kind, diverged.ranks, diverged.others) == (Kind.UNEVEN, (1,), (0, 2))
    dry = found({0: many, 1: with_page("barrier", data_ends=0, asks=9, batches=8), 2: many})
    assert dry.kind is Kind.UNEVEN, "a batch was asked for that did not come"
    both = found({0: with_page("all_reduce", data_ends=1), 1: with_page("barrier", data_ends=1), 2: many})
    assert both.kind is Kind.MISMATCH, "it does not part them"
    unknown = found({0: many, 1: with_page("barrier", data_ends=1), 2: waits(9, pages=[None, None])})
    assert unknown.kind is Kind.MISMATCH, "of one it is not known"


def test_who_has_a_batch_left_or_trained_longer_is_not_the_one_without_data():
    """It has come to the end of a loader of its own, which it evaluates with."""
    other = with_page("barrier", data_ends=3, step=17, backwards=17)
    page = {"heard": 7, "quiet_s": 12.0, "step": 17, "data_ends": 4, "backwards": 17}
    log = recorder(SIGNATURES, history(9, waiting=True))
    forward = (*c10d("all_reduce")[:2], frame("Module._call_impl", f"{TORCH}/nn/modules/module.py"), user(17), *BOOT)
    for stack in (BACKWARD, forward):
        assert found({0: made(stack, log=log, page=page), 1: other}).kind is Kind.MISMATCH
    longer = with_page("all_reduce", data_ends=4, step=18, backwards=18)
    assert found({0: longer, 1: other}).kind is Kind.MISMATCH
    equal = with_page("all_reduce", data_ends=4, step=17, backwards=17)
    assert found({0: equal, 1: other}).ranks == (0,)


BACKWARD = (frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979), user(30), *BOOT)


@pytest.mark.parametrize(("reduces", "backwards", "kind"), [
    (True, (5, 5), Kind.UNUSED),
    (False, (5, 5), Kind.MISMATCH),  # no_sync() prepares none
    (True, (5, 4), Kind.MISMATCH),  # it has left a whole backward out
])  # fmt: skip
def test_a_backward_without_its_reduction(reduces, backwards, kind):
    def page(number):
        return {"heard": 7, "quiet_s": 12.0, "step": 4, "backwards": number}

    log = recorder(SIGNATURES, history(9, waiting=True))
    many = made(BACKWARD, log=log, page=page(backwards[0]))
    few = waits(9, operation="barrier", page=page(backwards[1]))
    parameters = WithoutGradient(count=2, parameters=9, names=("head.weight", "head.bias"), reduces=reduces)
    diverged = found({0: many, 1: many, 2: few}, without_gradient=parameters)
    assert (diverged.kind, diverged.ranks) == (kind, (2,))


@pytest.mark.parametrize(("many", "ranks"), [((0,), (0, 2)), ((0, 1), (2,))])
def test_options_of_ddp_that_differ_are_no_unused_parameters(many, ranks):
    page = {"heard": 7, "quiet_s": 12.0, "step": 4, "backwards": 5}
    maps = made(BACKWARD, log=reduces(9, "Int"), page=page)
    parameters = WithoutGradient(count=9, parameters=9, reduces=True)
    diverged = found(
        dict.fromkeys(many, maps) | {2: waits(1, operation="broadcast", page=page)}, without_gradient=parameters
    )
    assert (diverged.kind, diverged.ranks, diverged.maps_used) == (Kind.MISMATCH, ranks, many)


def test_a_group_that_one_rank_makes_alone():
    ranks = {0: made((*c10d("new_group")[:2], user(4), *BOOT), log=recorder(SIGNATURES, history(8, waiting=False)))}
    ranks |= dict.fromkeys((1, 2, 3), at(9, "all_reduce", 26))
    diverged = found(ranks, sources=BRANCHES)
    assert (diverged.kind, diverged.ranks, diverged.condition.line) == (Kind.RANK_CONDITIONAL, (0,), 3)


@pytest.mark.parametrize(("condition", "named"), [("if rank % 2 == 0:", (0, 2)), ("if step % 9 == 0:", None)])
def test_a_group_that_half_of_the_ranks_make(condition, named):
    """Of two sides of equal size the `if` about the rank says which is apart; without one it is a circle."""
    forms = made((*c10d("new_group")[:2], user(4), *BOOT), log=recorder(SIGNATURES, history(8, waiting=False)))
    ranks = {0: forms, 2: forms, **dict.fromkeys((1, 3), at(9, "all_reduce", 26))}
    script = source(line_3=condition, line_4="    new_group(evens)", line_26="all_reduce(loss)")
    diverged = found(ranks, sources=script)
    assert (diverged and (diverged.kind, diverged.ranks)) == (named and (Kind.RANK_CONDITIONAL, named))


@pytest.mark.parametrize(
    ("few", "many", "kind"), [(26, 26, Kind.SHAPE), (25, 26, Kind.MISMATCH), (25, None, Kind.MISMATCH)]
)
def test_one_name_at_two_lines_is_another_collective(few, many, kind):
    """`many` is None where C++ began it, as DDP's reductions are."""

    def with_call(sizes, line):
        log = recorder(SIGNATURES, ("0", [("all_reduce", 30, True), ("all_reduce", 9, False)], 1))
        log.groups["0", "gloo"].signature[-1] = SIGNATURES.number(("gloo:all_reduce", (sizes,), ("Float",)))
        called = Call(int((T - 9) * 1e9) - 1000, "all_reduce", SCRIPT, line or 0, "<module>")
        return made((*c10d("all_reduce")[:2], user(27), *BOOT), log=log, calls=(called,) if line else ())

    diverged = found({0: with_call((1,), few), 1: with_call((64,), many), 2: with_call((64,), many)})
    assert (diverged.kind, diverged.ranks) == (kind, (0,))


def test_ranks_that_agree_have_not_diverged():
    assert found({0: waits(9), 1: waits(9), 2: sleeps(8)}) is None


def test_the_sentence_names_what_parts_them():
    ranks = {0: at(9, "barrier", 4), **dict.fromkeys((1, 2, 3), at(9, "all_reduce", 26))}
    report = build_report(evidence(ranks, sources=BRANCHES))
    assert roots(report) == [("rank-conditional-collective", (0,))]
    (summary,) = [f.summary for f in report.findings]
    assert "because of `if rank == 0` at train.py:3" in summary and "rank 0 in barrier" in summary


def test_a_main_thread_that_waits_for_the_one_in_another_collective():
    """It says no more than that one, and is below it."""
    joins = (frame("Thread.join", "/usr/lib/python3.11/threading.py", 1119), user(20), *BOOT)
    log = recorder(SIGNATURES, history(9, waiting=True, operation="all_gather"))
    saves = made(joins, log=log, threads=(lambda pid: thread(pid, c10d("all_gather", 11), os_id=7, name="saver"),))
    report = build_report(evidence({0: saves, 1: waits(9), 2: waits(9)}))
    assert roots(report) == [("collective-mismatch", (0,))]
