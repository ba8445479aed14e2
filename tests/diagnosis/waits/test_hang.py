"""The verdict on a hang: culprits, ties, missing evidence, contradictions, in any order, for 16,384 ranks."""

import time
from dataclasses import replace

import pytest

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.timeline.liveness import PARTLY_QUIET_S, QUIET_S
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.protocol.dump import ProcessState
from tests.hang_cases import (
    C10D,
    SIGNATURES,
    blind,
    c10d,
    evidence,
    history,
    made,
    recv,
    rooted,
    roots,
    send,
    shuffled,
    sleeps,
    stands_at,
    user,
    waits,
)
from tests.made_dump import BOOT, SCRIPT, TORCH, T, frame, recorder, thread

LIB = "/usr/lib/python3.11"
READS = (user(12, "load"), *BOOT)
JOIN = (frame("Thread.join", f"{LIB}/threading.py", 1119), user(20), *BOOT)
PAGE = {"heard": 7, "step": 4}
MEMBERS_OF_FOUR = {rank: {"0": (0, 1, 2, 3)} for rank in (2, 3)}


def judged(ranks, **options):
    report = build_report(evidence(ranks, **options))
    return roots(report), " ".join(u.because for u in report.unknown if "stands still" in u.what)


def thread_in(function, line=7):
    return lambda pid: thread(pid, c10d(function, line)[:3], os_id=pid + 1, name="saver")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("culprit", "name"), [
    (sleeps(8), "stuck-in-python"),
    (stands_at(READS, call="read"), "stuck-on-io"),
    (stands_at(READS, native=("sem_wait",)), "stuck-in-native"),
    (stands_at(READS, native=("PyThread_acquire_lock",)), "stuck-on-lock"),
    (stands_at(READS, state="T"), "process-stopped"),
    (stands_at(READS, state=""), "collective-not-joined"),
    (stands_at(None, missing={"stacks": "denied"}), "collective-not-joined"),
])  # fmt: skip
def test_one_culprit_in_any_order(culprit, name, seed):
    ranks = {0: waits(9), 1: waits(9), 2: culprit, 3: waits(9)}
    assert judged(shuffled(ranks, seed))[0] == [(name, (2,))]


@pytest.mark.parametrize(("line", "name"), [("with lock:", "stuck-on-lock"), ("solve(x)", "stuck-in-native")])
def test_a_stripped_library_gives_addresses_and_the_line_must_do(line, name):
    culprit = stands_at(READS, native=("0x7f9ce3038efe", "0x7f9ce302d9d4"))
    ranks = {0: waits(9), 1: waits(9), 2: culprit, 3: waits(9)}
    assert judged(ranks, sources={SCRIPT: "\n" * 11 + line})[0] == [(name, (2,))]


def test_loggings_handlers_enter_their_lock_themselves():
    """Python 3.13 and later, in the place of `Handler.acquire`."""
    culprit = stands_at((frame("Handler.handle", f"{LIB}/logging/__init__.py", 1026), *READS))
    assert judged({0: waits(9), 1: culprit})[0] == [("stuck-on-lock", (1,))]


@pytest.mark.parametrize("torch", [TORCH, "/home/me/pytorch/torch", "/opt/torch.zip/torch", "torch"])
def test_the_waiters_are_not_blamed_wherever_torch_is_installed(torch):
    """Stacks alone: torch's frames differ from the user's in a source checkout and in an archive, too."""

    def waits_there(rank):
        dump = blind()(rank)
        moved = tuple(
            replace(t, frames=tuple(replace(f, file=f.file.replace(TORCH, torch)) for f in t.frames))
            for t in dump.last.threads
        )
        return replace(dump, looks=tuple(replace(one, threads=moved) for one in dump.looks))

    report = build_report(evidence({0: waits_there, 1: waits_there, 2: waits_there, 3: sleeps(log=False)}))
    assert roots(report) == [("stuck-in-python", (3,))]


def test_two_culprits_are_two_findings():
    ranks = {0: waits(9), 1: sleeps(8), 2: stands_at(READS, call="read"), 3: waits(9)}
    assert sorted(judged(ranks)[0]) == [("stuck-in-python", (1,)), ("stuck-on-io", (2,))]


def test_a_rank_without_a_dump_is_suspected_and_the_reason_is_reported():
    report = build_report(evidence({0: waits(9), 1: waits(9)}, missing={2: "its node is gone"}))
    (found,) = report.findings
    assert (found.id, found.ranks, found.confidence) == ("collective-not-joined", (2,), "possible")
    assert "its node is gone" in found.summary


def test_rank_without_dump_is_not_blamed_beside_a_culprit():
    report = build_report(evidence({0: waits(9), 1: sleeps(8)}, missing={2: "x"}))
    assert [(f.id, f.ranks, f.confidence) for f in report.findings] == [("stuck-in-python", (1,), "likely")]


def test_several_ranks_without_dump_are_unknown_not_culprits():
    """One of them may have joined: none is named."""
    report = build_report(evidence({2: waits(9), 3: waits(9)}, missing=dict.fromkeys((0, 1), "another launch")))
    assert report.findings == ()
    (unknown,) = (u for u in report.unknown if u.what == "why the job stands still")
    assert unknown.decisive and "ranks 0-1, which were not read" in unknown.because


@pytest.mark.parametrize(("size", "told"), [("3", True), ("2", False), ("many", False)])
def test_group_of_more_ranks_than_were_started(size, told):
    helper = replace(frame("_new_process_group_helper", C10D, 2169), variables={"group_size": size})
    forms = made((helper, frame("init_process_group", C10D, 1899), user(4), *BOOT), log=None)
    found, why = judged({0: forms, 1: forms})
    assert found == []
    assert ("group of 3 ranks" in why and "2 were started" in why) == told


def test_launch_of_one_node_gives_rank_numbers_of_both_nodes():
    """Its job.json does not state the world size: `both ranks` would be those of this node or of the other one."""
    run = replace(evidence({2: waits(9), 3: sleeps(8)}, members=MEMBERS_OF_FOUR), job={})
    (found,) = build_report(run).findings
    assert (found.id, found.ranks) == ("stuck-in-python", (3,))
    both = replace(evidence({2: waits(9), 3: waits(9)}, members=MEMBERS_OF_FOUR), job={})
    assert who(both, (2, 3)) == "ranks 2-3" and who(evidence({0: waits(9), 1: waits(9)}), (0, 1)) == "both ranks"
    assert roots(build_report(both)) == []


def test_circle_is_found_beside_ranks_without_dump():
    in_pair = stands_at(c10d("all_reduce", 30), 8, groups=[("7", [("all_reduce", 20.0, False)], 1)])
    members = {rank: {"7": (0, 1)} for rank in (0, 1)}
    found = build_report(evidence({0: in_pair, 1: waits(9)}, missing={2: "x", 3: "x"}, members=members)).findings
    assert [(f.id, f.ranks) for f in found] == [("group-deadlock", (0, 1))]


@pytest.mark.parametrize(("unread", "ranks"), [({}, (2,)), ({3: "x"}, (0, 1, 2))])
def test_majority_needs_the_ranks_that_were_not_read(unread, ranks):
    """The rank that was not read may have come with either operation."""
    job = {0: waits(9), 1: waits(9), 2: waits(9, operation="barrier")}
    assert judged(job, missing=unread)[0] == [("collective-mismatch", ranks)]


def test_all_have_come_and_nobody_is_named():
    assert judged({r: waits(9) for r in range(4)})[0] == [("network-cut", ())]


def test_no_network_is_blamed_where_a_recorder_was_not_had():
    """The rank without one waits in the same function: perhaps in another number of it."""
    found, why = judged({0: waits(9), 1: blind(), 2: waits(9), 3: waits(9)})
    assert found == [] and "flight recorder of rank 1" in why


def test_nobody_has_a_recorder():
    assert judged({0: blind(), 1: blind(), 2: sleeps(log=False), 3: blind()})[0] == [("stuck-in-python", (2,))]


def test_a_send_and_a_receive_that_do_not_meet_are_unknown():
    ranks = {
        0: made(c10d("send"), calls=[send(1, 1)]), 1: made(c10d("recv"), calls=[recv(0, 1)]),
        2: waits(9), 3: waits(9),
    }  # fmt: skip
    found, why = judged(ranks)
    assert found == [] and "tags or sizes may differ" in why and "rank 0 waits in send at train.py:26" in why


def test_a_ring_of_receives_is_a_circle():
    ranks = {r: made(c10d("recv"), calls=[recv((r + 1) % 4, 1)]) for r in range(4)}
    assert judged(ranks)[0] == [("group-deadlock", (0, 1, 2, 3))]


def test_a_circle_through_one_of_two_that_a_rank_may_wait_for_is_only_likely():
    ranks = {r: made(c10d("recv"), calls=[recv(0)]) for r in (1, 2)}
    for calls, confidence in (([recv(1), recv(2, 1)], "likely"), ([recv(1)], "certain")):
        found = build_report(evidence(ranks | {0: made(c10d("recv"), calls=calls)})).findings
        deadlock = next(f for f in found if f.id == "group-deadlock")
        assert deadlock.confidence == confidence and ("may wait for another rank" in deadlock.cause) == (
            confidence == "likely"
        )


def test_other_collectives_by_the_stacks_alone_are_a_circle_only_likely():
    """They may be of one group, and then of no circle at all."""
    ranks = {r: made(c10d("barrier" if r == 1 else "all_reduce")) for r in range(4)}
    (found,) = build_report(evidence(ranks)).findings
    assert (found.id, found.confidence) == ("group-deadlock", "likely")
    assert "ranks that call other collectives of the same group look like this, too" in found.cause


@pytest.mark.parametrize(
    ("rest", "verdict"),
    [
        ("dist.all_reduce(x)", ("rank-conditional-collective", (0,))),
        ("if dist.get_rank() == 1:\n    dist.all_reduce(x)", ("group-deadlock", (0, 1, 2, 3))),  # each as it was meant
    ],
)
def test_one_side_in_a_branch_for_its_rank_is_apart_by_the_stacks_alone(rest, verdict):
    source = "\n" * 24 + f"if dist.get_rank() == 0:\n    dist.barrier()\n{rest}\n"
    line = 27 if rest.startswith("dist") else 28
    ranks = {r: made(c10d("barrier") if r == 0 else c10d("all_reduce", line)) for r in range(4)}
    (found,) = build_report(evidence(ranks, sources={SCRIPT: source})).findings
    assert ((found.id, found.ranks), found.confidence) == (verdict, "likely")


def test_different_roots_are_a_mismatch_and_no_cut_network():
    logs = {"log": recorder(SIGNATURES, history(9, waiting=True, operation="gather"))}
    ranks = {r: made(c10d("gather"), calls=[rooted("gather", 3 if r == 3 else 0)], **logs) for r in range(4)}
    assert judged(ranks)[0] == [("collective-mismatch", (3,))]
    same = {r: made(c10d("gather"), calls=[rooted("gather", 0)], **logs) for r in range(4)}
    assert judged(same)[0] == [("network-cut", ())]
    older = {r: made(c10d("gather"), calls=[rooted("gather", r, 14.5)], **logs) for r in range(4)}
    assert judged(older)[0] == [("network-cut", ())], "those calls began another operation"


def test_a_mismatch_that_all_have_got_over_is_not_why_a_rank_sleeps():
    """gloo pairs a barrier with an all_reduce in silence."""
    done = [("all_reduce", 30.0 - n, True) for n in range(7)]
    odd = [*done[:3], ("barrier", 27.0, True), *done[4:]]
    open_ = [("all_reduce", 12.0, False)]
    logs = {0: [*done, *open_], 1: [*odd, *open_], 2: [*done, *open_]}
    ranks = {r: made(c10d("all_reduce"), log=recorder(SIGNATURES, ("0", log, 1))) for r, log in logs.items()}
    sleeper = made((user(16), *BOOT), log=recorder(SIGNATURES, ("0", done, 1)), call="clock_nanosleep")
    assert judged(ranks | {3: sleeper})[0] == [("stuck-in-python", (3,))]


def test_a_checkpoints_thread_passes_the_blame_on():
    """Rank 0 waits for its thread, which waits for rank 3; ranks 1 and 2 wait for rank 0."""
    saving = ("1", [("barrier", 12.0, False)], 1)
    log = recorder(SIGNATURES, history(8, waiting=False), saving)
    members = {r: {"1": (0, 3)} for r in (0, 3)}
    ranks = {0: made(JOIN, log=log, threads=(thread_in("barrier"),)), 1: waits(9), 2: waits(9), 3: sleeps(8)}
    assert judged(ranks, members=members)[0] == [("stuck-in-python", (3,))]


def test_a_thread_that_waits_for_the_waiting_is_not_why_its_rank_waits():
    """Rank 2's metrics thread is early; its main thread waits for something else, and all wait for that."""
    metrics = ("1", [("barrier", 12.0, False)], 1)
    log = recorder(SIGNATURES, history(8, waiting=False), metrics)
    members = {r: {"1": (0, 1, 2, 3)} for r in range(4)}
    ranks = {0: waits(9), 1: waits(9), 2: made(JOIN, log=log, threads=(thread_in("barrier"),)), 3: waits(9)}
    assert judged(ranks, members=members)[0] == [("stuck-on-lock", (2,))]


def test_a_pipeline_passes_the_blame_on_to_another_dimension():
    """2x2: rank 0 waits for rank 1's part of its pipeline, rank 2 for rank 0 in the data parallel group."""
    dp = [("all_reduce", 12.0, False)]
    schedule = (frame("_wait_batch_p2p", f"{TORCH}/distributed/pipelining/schedules.py", 600), user(16), *BOOT)
    ranks = {
        0: made(schedule, log=recorder(SIGNATURES, history(8, waiting=False)), calls=[recv(1, 5)]),
        1: sleeps(8, calls=[send(0, 4)]),
        2: made(c10d("all_reduce"), log=recorder(SIGNATURES, history(8, waiting=False), ("dp0", dp, 5))),
        3: made(c10d("all_reduce"), log=recorder(SIGNATURES, history(8, waiting=False), ("dp1", dp, 5))),
    }
    members = {r: {f"dp{r % 2}": (r % 2, r % 2 + 2)} for r in range(4)}
    assert judged(ranks, members=members)[0] == [("stuck-in-python", (1,))]


def nccl(number, *, done, state="started"):
    entries = [
        {"process_group": ["0", "default_pg"], "is_p2p": False, "collective_seq_id": n, "timeout_ms": 600_000,
         "profiling_name": "nccl:all_reduce", "input_sizes": [[64]], "input_dtypes": ["Float"],
         "state": "completed" if n < number or done else state, "retired": n < number or done,
         "time_created_ns": int((T - 12 - number + n) * 1e9)}
        for n in range(1, number + 1)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return read_recorder({"version": "2.10", "pg_config": config, "entries": entries}, SIGNATURES)


@pytest.mark.parametrize("state", ["started", "scheduled"])
def test_devices_that_spin(state):
    """With NCCL all wait by burning a CPU; the culprit does, too. Where all have come, start times decide."""
    spin = {"call": "", "state": "R", "cpu": (1.0, 2.0)}
    wait = made((user(13), *BOOT), log=nccl(9, done=False, state=state), **spin)
    loop = made((user(17, "search"), user(30), *BOOT), log=nccl(8, done=True), **spin)
    sources = {SCRIPT: "\n" * 12 + "total += loss.item()\n" + "\n" * 3 + "while x: x = step(x)\n"}
    assert judged({0: wait, 1: wait, 2: loop, 3: wait}, sources=sources)[0] == [("stuck-in-python", (2,))]
    everybody = [("network-cut", ())] if state == "started" else []
    assert judged(dict.fromkeys(range(4), wait), sources=sources)[0] == everybody


def test_wait_among_ranks_that_have_all_ended_is_over():
    """The dump was taken while torch's timeout ended the job; a rank that lives and keeps the others is named."""
    gone = made(None, state="", log=nccl(8, done=False))
    assert judged(dict.fromkeys(range(4), gone))[0] == []
    sleeper = sleeps(log=nccl(7, done=True))
    assert judged({0: gone, 1: gone, 2: gone, 3: sleeper})[0] == [("stuck-in-python", (3,))]


def test_contradictory_evidence_is_survived():
    """A stack in a collective that the recorder calls finished; a stopped rank in a collective; a foreign group."""
    ranks = {
        0: made(c10d("all_reduce"), log=recorder(SIGNATURES, history(9, waiting=False))),
        1: waits(9),
        2: made(c10d("all_reduce"), state="T", log=recorder(SIGNATURES, history(8, waiting=False))),
        3: waits(9, groups=[("99", [("barrier", 40.0, False)], 3)]),
    }
    assert judged(ranks)[0] == [("process-stopped", (2,))]


# -- does it stand at all? --------------------------------------------------------------------------------------------


def by_hand(quiet_s, *, moved=(), cpu=None, written=0, ranks=None):
    """A dump that nobody's detector has asked for."""
    pages = [PAGE | {"quiet_s": quiet_s}] * 2
    found = {
        0: waits(9, pages=pages), 1: waits(9, pages=pages),
        2: sleeps(8, pages=pages, **({"call": "", "state": "R", "cpu": cpu} if cpu else {})),
    }  # fmt: skip
    for rank in moved:
        found[rank] = waits(9, pages=[PAGE | {"quiet_s": 0.1}, PAGE | {"heard": 8, "quiet_s": 0.0}])
    built = evidence(ranks or found, quiet_s=None, reason="asked")
    if written:
        had = built.dump.ranks[2]
        processes = [
            ProcessState(**look.process.fields(), written=n) for look, n in zip(had.looks, (0, written), strict=True)
        ]
        looks = tuple(replace(look, process=process) for look, process in zip(had.looks, processes, strict=True))
        built.dump.ranks[2] = replace(had, looks=looks)
    return built


def test_what_was_heard_a_moment_ago_is_not_stuck():
    assert not hang_of(by_hand(QUIET_S - 1)).stands
    assert build_report(by_hand(QUIET_S - 1)).findings == ()
    (found,) = build_report(by_hand(QUIET_S + 1)).findings
    assert (found.id, found.ranks, found.severity, found.confidence) == ("stuck-in-python", (2,), "warning", "possible")
    assert "may go on by itself" in found.cause
    assert roots(build_report(by_hand(PARTLY_QUIET_S + 1))) == [("stuck-in-python", (2,))]


def test_what_the_launch_has_called_hung_is_not_asked_whether_it_is():
    built = by_hand(QUIET_S - 1)
    stalled = (1, {"event": "stalled", "attempt": 1, "t": T - 2, "quiet_s": 7.0})
    (found,) = build_report(replace(built, events=(stalled,))).findings
    assert (found.id, found.ranks, found.severity, found.confidence) == ("stuck-in-python", (2,), "error", "certain")
    later = (2, {"event": "moving-again", "attempt": 1, "t": T - 1, "quiet_s": 0.0})
    assert build_report(replace(built, events=(stalled, later))).findings == ()
    assert not hang_of(replace(by_hand(QUIET_S - 1, moved=[1]), events=(stalled,))).stands


def test_a_rank_that_went_on_between_the_looks():
    assert not hang_of(by_hand(QUIET_S + 1, moved=[1])).stands


def test_bytes_that_flow_are_work():
    assert build_report(by_hand(QUIET_S + 1, written=1 << 20)).findings == ()
    assert build_report(by_hand(QUIET_S + 1, written=100)).findings != ()


def test_bytes_that_a_look_made_the_rank_write_are_no_work():
    """A rank that may not be traced writes its stacks itself, between the begin and the end of a look."""
    run = by_hand(PARTLY_QUIET_S + 1, written=1 << 20)
    first, last = run.dump.ranks[2].looks
    asked = replace(first, after=ProcessState(t=first.t + 0.2, written=last.process.written))
    ranks = run.dump.ranks | {2: replace(run.dump.ranks[2], looks=(asked, last))}
    assert roots(build_report(run)) == []
    assert roots(build_report(replace(run, dump=replace(run.dump, ranks=ranks)))) == [("stuck-in-python", (2,))]


def test_ranks_that_all_compute_are_at_work():
    busy = stands_at((user(7), *BOOT), call="", state="R", cpu=(1.0, 1.6), pages=[PAGE | {"quiet_s": 20.0}] * 2)
    assert build_report(by_hand(20.0, ranks=dict.fromkeys(range(4), busy))).findings == ()
    slept = sleeps(8, pages=[PAGE | {"quiet_s": 20.0}] * 2)
    found = build_report(by_hand(20.0, ranks={0: busy, 1: busy, 2: slept})).findings
    assert {f.id for f in found} == {"stuck-in-python"}, "one does not"


def test_a_rank_that_computes_for_some_seconds_may_be_at_work():
    (found,) = build_report(by_hand(QUIET_S + 5, cpu=(1.0, 2.0))).findings
    assert (found.severity, found.confidence) == ("warning", "possible") and "may go on by itself" in found.cause
    (found,) = build_report(by_hand(PARTLY_QUIET_S + 1, cpu=(1.0, 2.0))).findings
    assert found.severity == "error"


def computes(quiet_s, *, then=12, pages=None):
    """Rank 1 of two burns CPU at line 7 in the first look and at line `then` in the second one."""
    busy = stands_at((user(7, "score"), *BOOT), call="", state="R", cpu=(1.0, 2.0), pages=pages)
    built = evidence({0: waits(9, pages=pages), 1: busy}, quiet_s=quiet_s, reason="hang" if quiet_s else "asked")
    had = built.dump.ranks[1]
    last = replace(had.looks[1], threads=(thread(had.pid, (user(then, "score"), *BOOT)),))
    built.dump.ranks[1] = replace(had, looks=(had.looks[0], last))
    return built


def test_nobody_can_tell_whether_a_rank_that_goes_from_line_to_line_comes_to_an_end():
    (found,) = build_report(computes(600.0)).findings
    assert (found.id, found.ranks, found.severity, found.confidence) == ("stuck-in-python", (1,), "error", "likely")
    assert "may be slow and no more" in found.cause
    (found,) = build_report(computes(600.0, then=7)).findings
    assert found.confidence == "certain" and "may be slow" not in found.cause


def test_a_job_that_nobody_listens_to_may_be_at_work():
    (found,) = build_report(computes(None, pages=[None, None])).findings
    assert (found.ranks, found.severity, found.confidence) == ((1,), "warning", "possible")
    assert "may be slow and no more" in found.cause
    assert roots(build_report(computes(None, then=7, pages=[None, None]))) == [("stuck-in-python", (1,))]


def test_ranks_that_hang_beside_others_that_go_on():
    def of(group, *, number, waiting, quiet_s, heard=7, **more):
        log = recorder(SIGNATURES, history(number, waiting=waiting, group=group))
        return {"log": log, "pages": [PAGE | {"quiet_s": quiet_s}, PAGE | {"quiet_s": quiet_s, "heard": heard}]} | more

    def ranks(quiet_s):
        train = made(c10d("all_reduce"), **of("1", number=50, waiting=True, quiet_s=0.0, heard=9))
        stuck = made((user(16), *BOOT), **of("2", number=8, waiting=False, quiet_s=quiet_s, call="clock_nanosleep"))
        return {
            0: train,
            1: train,
            2: made(c10d("all_reduce"), **of("2", number=9, waiting=True, quiet_s=quiet_s)),
            3: stuck,
        }

    members = {r: {str(1 + r // 2): (r // 2 * 2, r // 2 * 2 + 1)} for r in range(4)}
    found, _ = judged(ranks(PARTLY_QUIET_S + 1), members=members, quiet_s=None)
    assert found == [("stuck-in-python", (3,))]
    assert judged(ranks(PARTLY_QUIET_S - 20), members=members, quiet_s=None)[0] == []


def test_a_job_that_ended_well_after_the_dump_did_not_hang():
    assert hang_of(evidence({0: waits(9), 1: sleeps(8)}, exit_code=0)) is None
    assert hang_of(evidence({0: waits(9), 1: sleeps(8)}, step=90)) is None, "it has made steps since"
    assert hang_of(evidence({0: waits(9), 1: sleeps(8)}, step=4)) is not None


def test_what_went_on_later_did_not_hang():
    """Though it makes no steps, and failed or was ended in the end; to move a little is what follows a timeout, too."""
    built = evidence({0: waits(9), 1: sleeps(8)}, exit_code=1)

    def after(event, seconds, attempt=1):
        return hang_of(replace(built, events=((1, {"event": event, "attempt": attempt, "t": T + seconds}),)))

    assert after("went-on", 7) is None
    assert after("went-on", 7, attempt=2) is not None
    assert after("went-on", -1) is not None, "before this dump"
    assert after("moving-again", 7) is not None


def test_a_timeout_that_nobody_waits_for_has_no_culprit():
    all_sleep = dict.fromkeys(range(4), sleeps(8))
    ahead = evidence(all_sleep, reason="timeout", quiet_s=16.0)
    assert hang_of(ahead).culprits == () and build_report(ahead).findings == ()
    stalled = (1, {"event": "stalled", "attempt": 1, "t": T - 2, "quiet_s": 20.0})
    assert roots(build_report(replace(ahead, events=(stalled,)))) == [("stuck-in-python", (0, 1, 2, 3))]
    assert judged({0: waits(9), 1: sleeps(8)}, reason="timeout")[0] == [("stuck-in-python", (1,))]


def test_ranks_that_have_not_used_torch_yet_may_just_keep_a_service():
    page = {"heard": 0, "quiet_s": 12.0, "step": 0}
    keeps = stands_at(READS, call="wait4", log=False, page=page)
    built = evidence(dict.fromkeys(range(2), keeps))
    unused = replace(built, ranks=tuple(replace(r, initialised=False, step=0) for r in built.ranks),
                     events=((1, {"event": "stalled", "attempt": 1, "t": T - 2, "quiet_s": 12.0}),))  # fmt: skip
    report = build_report(unused)
    assert report.findings == ()
    (why,) = [u.because for u in report.unknown if "stands still" in u.what]
    assert why.startswith("no rank was found that the others wait for: ranks 0-1 wait ")
    assert hang_of(built).culprits, "they have made a group"
    given = replace(unused, events=((1, unused.events[0][1] | {"given": True}),))
    assert roots(build_report(given)) == [("stuck-on-io", (0, 1))], "a person said how long it may stand"


def test_no_dump_is_no_hang():
    assert hang_of(evidence({})) is None


@pytest.mark.slow
def test_16384_ranks_in_seconds():
    """One log a kind of rank: what is timed is the verdict, not the making of dumps."""
    signatures = Signatures()
    late, early = (recorder(signatures, history(n, waiting=w)) for n, w in ((9, True), (8, False)))
    ranks = dict.fromkeys(range(16_384), made(c10d("all_reduce"), log=late)) | {
        777: made((user(16), *BOOT), log=early, call="clock_nanosleep")
    }
    case = evidence(ranks)
    begun = time.process_time()
    hang = hang_of(case)
    assert [c.ranks for c in hang.culprits] == [(777,)]
    assert roots(build_report(case)) == [("stuck-in-python", (777,))]
    assert time.process_time() - begun < 15
    assert hang.standings[777].doing is Doing.PYTHON


def test_a_hook_of_the_backward_runs_in_the_engines_own_thread():
    """A thread that Python began is another one, whatever it does."""
    backward = (frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979), user(43), *BOOT)
    begun = (frame("Thread.run", f"{LIB}/threading.py", 982), frame("Thread._bootstrap", f"{LIB}/threading.py", 1002))

    def prefetches(pid):
        return thread(pid, (user(50, "prefetch"), *begun), os_id=pid + 1)

    def hooked(pid):
        return thread(pid, (user(26, "late"),), os_id=pid + 2, name="")

    late = stands_at(backward, threads=(prefetches, hooked))
    report = build_report(evidence({0: waits(9), 1: waits(9), 2: late}, sources={SCRIPT: "\n" * 25 + "time.sleep(9)"}))
    assert roots(report) == [("stuck-in-python", (2,))] and ":26" in report.findings[0].summary, report
    alone = stands_at(backward, threads=(prefetches,), native=("sem_wait",))
    report = build_report(evidence({0: waits(9), 1: waits(9), 2: alone}))
    assert roots(report) == [("stuck-in-native", (2,))] and ":43" in report.findings[0].summary, report


@pytest.mark.parametrize(("held", "name"), [((True, True), "stuck-in-native"), ((True, False), "stuck-in-python")])
def test_a_c_function_that_sleeps_with_the_gil_is_no_sleep_of_pythons(held, name):
    def late(rank):
        had = sleeps(8)(rank)
        looks = zip(had.looks, held, strict=True)
        return replace(had, looks=tuple(
            replace(look, threads=tuple(replace(t, holds_gil=gil) for t in look.threads)) for look, gil in looks
        ))  # fmt: skip

    assert judged({0: waits(9), 1: waits(9), 2: late})[0] == [(name, (2,))]


def test_progress_before_the_dump_that_was_heard_of_after_it_is_none_after_it():
    built = evidence({0: waits(9), 1: sleeps(8)}, exit_code=1)
    for since, hangs in ((-1, True), (1, False)):
        event = {"event": "went-on", "attempt": 1, "t": T + 7, "since": T + since}
        assert (hang_of(replace(built, events=((1, event),))) is not None) is hangs
