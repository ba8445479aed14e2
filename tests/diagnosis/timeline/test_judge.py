"""Where one rank stands: every Doing, and what must not be taken for another one."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.timeline.judge import stand
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.evidence.dump import Dump, Look, RankDump
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.run import ExceptionFact, RankRecord
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.protocol.dump import ProcessState
from tests.hang_cases import SIGNATURES, T, c10d, history, made, send, sleeps, stands_at, user, waits
from tests.made_dump import (
    BOOT,
    IDLES,
    LOADS,
    SCRIPT,
    SLEEPS,
    TORCH,
    WAITS,
    WORKS,
    frame,
    made_dump,
    rank_dump,
    recorder,
    thread,
)

C10D_FILE = f"{TORCH}/distributed/distributed_c10d.py"
LIB = "/usr/lib/python3.11"
BACKWARD = (
    frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979),
    frame("backward", f"{TORCH}/_tensor.py", 623),
    user(30),
    *BOOT,
)
EVENT = (
    frame("Condition.wait", f"{LIB}/threading.py", 327),
    frame("Event.wait", f"{LIB}/threading.py", 629),
    user(13),
    *BOOT,
)
RESULT = (
    frame("Condition.wait", f"{LIB}/threading.py", 327),
    frame("Future.result", f"{LIB}/concurrent/futures/_base.py", 451),
    user(14),
    *BOOT,
)
LOGS = (
    frame("Handler.acquire", f"{LIB}/logging/__init__.py", 927),
    frame("Handler.handle", f"{LIB}/logging/__init__.py", 976),
    user(11),
    *BOOT,
)
LOOP = (
    frame("select", f"{LIB}/selectors.py", 468),
    frame("BaseEventLoop._run_once", f"{LIB}/asyncio/base_events.py", 1884),
    user(12),
    *BOOT,
)
MEETS = frame("_tcp_rendezvous_handler", f"{TORCH}/distributed/rendezvous.py")
SHUTDOWN = (frame("_shutdown", f"{LIB}/threading.py", 1590),)


def standing(build, *, sources=None, record=None, **options):
    lines = {SCRIPT: "\n".join((sources or {}).get(n, f"line_{n}()") for n in range(1, 41))}
    return stand(build(3), record, Dump("x", T, sources=lines, signatures=SIGNATURES), **options)


def thread_in(frames, name="ThreadPoolExecutor-0_0"):
    return lambda pid: thread(pid, frames, os_id=pid + 1, name=name)


def open_log(*groups):
    return recorder(SIGNATURES, history(9, waiting=True), *groups)


@pytest.mark.parametrize(("build", "doing", "words"), [
    (waits(9), Doing.COLLECTIVE, "waits in all_reduce"),
    (waits(9, operation="barrier"), Doing.COLLECTIVE, "waits in barrier"),
    (stands_at(BACKWARD, log=True, native=("c10d::Reducer::finalize_backward",)), Doing.NATIVE, "futex"),
    (made(BACKWARD, log=open_log(), native=("c10d::Work::wait",)), Doing.COLLECTIVE, "waits in backward"),
    (made(BACKWARD, log=open_log()), Doing.COLLECTIVE, "waits in backward"),
    (made(c10d("recv"), calls=[send(1)]), Doing.TRANSFER, "waits in recv"),
    (made(c10d("batch_isend_irecv")), Doing.TRANSFER, "batch_isend_irecv"),
    (made(c10d("new_group")), Doing.FORMING, "waits in new_group"),
    (made((MEETS, user(3), *BOOT)), Doing.FORMING, "init_process_group"),
    (made(c10d("all_reduce"), state="Z"), Doing.ENDED, "has ended"),
    (made(c10d("all_reduce"), state=""), Doing.ENDED, "has ended"),
    (made(c10d("all_reduce"), state="T"), Doing.STOPPED, "SIGSTOP"),
    (made(None, missing={"stacks": "permission denied"}), Doing.UNKNOWN, "permission denied"),
    (made(None, log=open_log()), Doing.COLLECTIVE, "by its flight recorder"),
    (made(SHUTDOWN), Doing.LOCK, "has ended its script"),
    (made(LOADS, call="poll"), Doing.LOADER, "waits for its loader"),
    (stands_at(EVENT), Doing.LOCK, "Event.wait"),
    (stands_at(LOGS), Doing.LOCK, "waits for a lock in Handler.handle"),
    (stands_at((user(7), *BOOT), native=("PyThread_acquire_lock_timed",)), Doing.LOCK, "waits for a lock"),
    (stands_at((user(7), *BOOT), call="wait4"), Doing.IO, "child"),
    (stands_at((user(7), *BOOT), call="openat"), Doing.IO, "open()"),
    (stands_at((user(7), *BOOT), call="read"), Doing.IO, "read"),
    (stands_at((user(7), *BOOT), state="D", call=""), Doing.IO, "state D"),
    (stands_at((user(7), *BOOT), call="poll"), Doing.IO, "socket"),
    (stands_at(LOOP, call="epoll_wait"), Doing.IO, "event loop"),
    (stands_at((user(7), *BOOT), native=("c10d::TCPStore::wait",), call="recvfrom"), Doing.IO, "store"),
    (stands_at((user(7), *BOOT), native=("sem_wait",)), Doing.NATIVE, "futex"),
    (stands_at((user(7), *BOOT), call="rt_sigtimedwait"), Doing.NATIVE, "signal"),
    (sleeps(), Doing.PYTHON, "sleeps"),
    (stands_at((user(7), *BOOT), call="", state="R", cpu=(1.0, 2.0)), Doing.PYTHON, "burns CPU"),
])  # fmt: skip
def test_every_doing(build, doing, words):
    found = standing(build)
    assert (found.doing, words in found.phrase) == (doing, True), found
    assert found.rank == 3


def test_process_that_is_stopped_in_one_look_alone():
    """Another dump of it was being taken: py-spy stops it for milliseconds."""
    had = sleeps()(3)
    looks = had.looks if len(had.looks) > 1 else (*had.looks, *had.looks)
    last = replace(looks[-1], process=ProcessState(**looks[-1].process.fields() | {"state": "t"}))
    found = standing(lambda *_, **__: replace(had, looks=(*looks[:-1], last)))
    assert found.doing is Doing.PYTHON


def test_a_raised_exception_whose_thread_lives_on():
    record = RankRecord(
        3,
        1,
        1,
        "node1",
        exceptions=(ExceptionFact(t=T, rank=3, type="ValueError", message="x", traceback="", uncaught=True),),
    )
    found = standing(made(SHUTDOWN, threads=(thread_in((user(5, "ship"),)),)), record=record)
    assert found.doing is Doing.RAISED and "ThreadPoolExecutor-0_0" in found.phrase


def test_the_innermost_line_of_the_users_is_reported():
    found = standing(sleeps())
    assert (found.frame.line, [f.line for f in found.frames]) == (16, [16, 24])


def test_a_users_callback_below_a_collective_is_no_wait_for_ranks():
    """torch pickles an object, and its __reduce__ sleeps."""
    frames = (user(6, "Lazy.__reduce__"), *c10d("all_gather_object"))
    assert standing(stands_at(frames, call="clock_nanosleep")).doing is Doing.PYTHON


def test_to_pickle_an_object_is_no_wait_for_ranks():
    frames = (frame("_object_to_tensor", C10D_FILE, 3405), *c10d("all_gather_object"))
    assert standing(stands_at(frames, call="", state="R", cpu=(1.0, 2.0))).doing is not Doing.COLLECTIVE


@pytest.mark.parametrize(("frames", "line"), [(EVENT, "ready.wait()"), (RESULT, "future.result()")])
def test_a_wait_of_pythons_own_is_no_collective_though_one_is_open(frames, line):
    found = standing(made(frames, log=open_log()), sources={13: line, 14: line})
    assert found.doing is Doing.LOCK


def test_the_line_speaks_where_the_c_frames_are_missing():
    build = made((user(13), *BOOT), log=open_log())
    assert standing(build, sources={13: "work.wait()"}).doing is Doing.COLLECTIVE
    assert not standing(build, sources={13: "work.wait()"}).sure
    assert standing(build, sources={13: "compute()"}).doing is Doing.NATIVE


def test_a_pipelines_schedule_waits_for_its_neighbours():
    frames = (frame("_wait_batch_p2p", f"{TORCH}/distributed/pipelining/schedules.py", 600), user(16), *BOOT)
    assert standing(made(frames, calls=[send(1)])).doing is Doing.TRANSFER
    assert standing(made(frames)).doing is Doing.NATIVE, "without a transfer nothing says that it waits for one"


def test_a_wait_for_a_thread_that_waits_for_ranks_is_that_threads():
    saver = thread_in(c10d("barrier", 7)[:3])
    found = standing(made(RESULT, log=open_log(), threads=(saver,)))
    assert (found.doing, found.function, found.frame.line) == (Doing.COLLECTIVE, "barrier", 7)
    assert (found.sure, found.thread) == (False, "thread ThreadPoolExecutor-0_0")
    assert "ThreadPoolExecutor-0_0, which waits in barrier" in found.phrase
    own = standing(made(RESULT, log=open_log(), threads=(saver,)), delegates=False)
    assert (own.doing, own.frame.line) == (Doing.LOCK, 14)


def test_a_thread_that_waits_for_ranks_says_nothing_of_a_main_thread_that_does_not_wait_for_threads():
    saver = thread_in(c10d("barrier", 7)[:3])
    assert standing(stands_at((user(7), *BOOT), call="read", threads=(saver,))).doing is Doing.IO
    assert (
        standing(made(RESULT, log=recorder(SIGNATURES, history(8, waiting=False)), threads=(saver,))).doing
        is Doing.LOCK
    )


def test_a_loaders_worker_waits_for_a_thread_of_its_own():
    def worker(pid):
        return Thread(pid + 500, pid + 500, "MainThread", False, False, WORKS)

    def helper(pid):
        return Thread(pid + 500, pid + 501, "Thread-1", False, False, (user(33, "fetch"),))

    children = {1503: {"syscall": "futex"}}
    found = standing(made(LOADS, call="poll", threads=(worker, helper), children=children))
    assert found.doing is Doing.LOADER and found.worker[0].line == 33 and "train.py:33" in found.phrase
    alone = standing(made(LOADS, call="poll", threads=(worker,), children=children))
    assert alone.worker[0].line == 5 and "waits for a lock at train.py:5" in alone.phrase


@pytest.mark.parametrize("call", ["clock_nanosleep", "poll", "restart_syscall"])
def test_a_main_thread_that_watches_its_trainer_stands_where_that_one_does(call):
    trainer = thread_in(c10d("all_reduce", 10)[:3], "Thread-1 (train)")
    main = (user(16), *BOOT)
    found = standing(made(main, call=call, log=open_log(), threads=(trainer,)), sources={16: "time.sleep(1)"})
    assert (found.doing, found.frame.line, found.thread) == (Doing.COLLECTIVE, 10, "thread Thread-1 (train)")
    own = open_log(("2", [("all_reduce", 9.0, True)], 1))
    two = standing(made(main, call=call, log=own, threads=(trainer,)), sources={16: "time.sleep(1)"})
    assert not two.doing.waits_for_ranks, "main may be the one that is waited for in the other group"
    receives = thread_in(c10d("recv", 10)[:3])
    done = recorder(SIGNATURES, history(8, waiting=False))
    assert not standing(made(main, call=call, log=done, threads=(receives,))).doing.waits_for_ranks


def test_a_trainer_that_waits_for_no_rank_is_reported_by_its_own_line():
    trainer = thread_in((user(9, "train"),), "Thread-1 (train)")
    calls = [Call(1, "all_reduce", SCRIPT, 10, "train")]
    main = (user(16), *BOOT)
    found = standing(made(main, call="clock_nanosleep", threads=(trainer,), calls=calls))
    assert (found.doing, found.frame.line, found.sure) == (Doing.PYTHON, 9, False)
    assert found.phrase == "watches its thread Thread-1 (train), which stands"
    assert found.frames == (user(9, "train"),), "the main thread's line has not called it"
    elsewhere = [Call(1, "all_reduce", SCRIPT, 10, "evaluate")]
    assert standing(made(main, call="clock_nanosleep", threads=(trainer,), calls=elsewhere)).frame.line == 16
    own = (user(16, "train"), *BOOT)
    assert standing(made(own, call="clock_nanosleep", threads=(trainer,), calls=calls)).frame.line == 16


def test_a_worker_that_waits_for_what_to_load_is_not_the_one():
    """It was forked within the loader, and has the frames of that below its own."""

    def worker(number, frames):
        return lambda pid: Thread(pid + number, pid + number, "MainThread", False, False, frames)

    def found(*stacks, call="poll", **options):
        threads = [worker(500 + n, frames) for n, frames in enumerate(stacks)]
        children = {1503 + n: {"syscall": call} for n in range(len(stacks))}
        return standing(made(LOADS, call="poll", threads=threads, children=children), **options)

    last = found(IDLES, IDLES, WORKS)
    assert last.worker[0].line == 5 and last.phrase.endswith("worker pid 1505 waits in poll at train.py:5")
    assert [f.line for f in last.worker] == [5], "the lines that it was forked at are not its own"
    elsewhere = (user(9, "Data.__getitem__"), *WORKS[1:])
    assert found(WORKS, elsewhere, IDLES).phrase.endswith("at train.py:5"), "two lines are not the same wait"
    assert found(WORKS, WORKS, elsewhere, WORKS).phrase.endswith("at train.py:5; so do 2 more")
    assert found(IDLES, IDLES).phrase == "waits for its loader's workers"
    library = (frame("default_collate", f"{TORCH}/utils/data/_utils/collate.py", 398), *IDLES[1:])
    assert found(IDLES, library).phrase.endswith("pid 1504 waits in poll at collate.py:398")
    assert found(library, WORKS).phrase.endswith("pid 1504 waits in poll at train.py:5")
    tracker = (frame("main", f"{LIB}/multiprocessing/resource_tracker.py", 227),)
    assert found(tracker, WORKS).worker[0].line == 5, "a helper of a fork server is no worker"
    assert found(tracker, IDLES).phrase == "waits for its loader's workers"
    sleeping = found(WORKS, call="restart_syscall", sources={5: "time.sleep(1)"})
    assert "sleeps at train.py:5" in sleeping.phrase, "a sleep that a look has interrupted"


def nccl(*, done, started=True):
    entry = {
        "process_group": ["0", "default_pg"], "is_p2p": False, "collective_seq_id": 9, "timeout_ms": 600_000,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[64]], "input_dtypes": ["Float"],
        "state": "completed" if done else "started" if started else "scheduled", "retired": done,
        "time_created_ns": int((T - 12) * 1e9),
    }  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return read_recorder({"version": "2.10", "pg_config": config, "entries": [entry]}, SIGNATURES)


def test_a_wait_for_a_device_spins():
    """With NCCL the host waits where it asks for a value, and burns a CPU on it."""
    build = made((user(13), *BOOT), call="", state="R", cpu=(1.0, 2.0), log=nccl(done=False))
    assert standing(build, sources={13: "total += loss.item()"}).doing is Doing.COLLECTIVE
    assert standing(build, sources={13: "batch = batch.to(device)"}).doing is Doing.COLLECTIVE
    assert standing(build, sources={13: "total += loss"}).doing is Doing.PYTHON
    done = made((user(13), *BOOT), call="", state="R", cpu=(1.0, 2.0), log=nccl(done=True))
    assert standing(done, sources={13: "total += loss.item()"}).doing is Doing.PYTHON


def test_a_c_function_may_wait_for_the_device():
    blocked = made((user(13), *BOOT), call="futex", log=nccl(done=False))
    assert standing(blocked, sources={13: "y = layer(x)"}).doing is Doing.COLLECTIVE
    beside = made((user(13), *BOOT), call="futex", log=nccl(done=True))
    assert standing(beside, sources={13: "y = layer(x)"}).doing is Doing.NATIVE


def test_a_process_that_is_at_its_end_and_runs_no_python_is_no_loop():
    record = RankRecord(3, 1, 0, "node0", script_ended=T - 1)
    ending = made((), call="", state="R", cpu=(1.0, 2.0))
    assert standing(ending).doing is Doing.PYTHON
    assert standing(ending, record=record).doing is Doing.NATIVE
    raised = replace(record, exceptions=(ExceptionFact(3, "RuntimeError", "Connection closed", "", T - 1, True),))
    assert standing(ending, record=raised).doing is Doing.RAISED


SYNCHRONIZES = (frame("synchronize", f"{TORCH}/cuda/__init__.py", 1162), user(16), *BOOT)
#: innermost first, as py-spy showed them on an H200
ITEM = ("0x7fb5b795d157", "cuStreamSynchronize", "cudaStreamSynchronize", "at::native::_local_scalar_dense_cuda")


@pytest.mark.parametrize(
    ("frames", "native", "line"),
    [(SYNCHRONIZES, (), 16), (SYNCHRONIZES, ("cuCtxSynchronize_v2", "cudaDeviceSynchronize"), 16),
     ((user(7), *BOOT), ITEM, 7)],
    ids=["by torch's function", "synchronize", "item"],
)  # fmt: skip
@pytest.mark.parametrize(("state", "cpu", "call"), [("R", (1.0, 2.0), ""), ("S", (0.0, 0.0), "futex")])
def test_host_that_waits_for_its_own_device(frames, native, line, state, cpu, call):
    """CUDA spins or sleeps. No operation of a group is open."""
    found = standing(stands_at(frames, native=native, state=state, cpu=cpu, call=call, log=True))
    assert (found.doing, found.frame.line, bool(found.native_call)) == (Doing.DEVICE, line, True), found


def test_empty_recorder_of_a_job_with_nccl_blames_no_host():
    """Newer process groups of NCCL have a recorder of their own: a collective may be open all the same."""
    rank = made(SYNCHRONIZES, state="R", cpu=(1.0, 2.0), call="", log=recorder(SIGNATURES))(3)
    dump = Dump("x", T, signatures=SIGNATURES)
    vars(dump)["pids_of_nccl"] = frozenset({rank.pid})
    found = stand(rank, None, dump)
    assert found.doing is Doing.COLLECTIVE and not found.sure, found


def test_backward_on_a_device_that_waits_for_ranks():
    """Autograd's thread for the device makes the calls; the main thread waits for that thread."""
    found = standing(made(BACKWARD, log=open_log(), native=("pthread_cond_wait", "torch::autograd::ReadyQueue::pop")))
    assert (found.doing, found.function) == (Doing.COLLECTIVE, "backward"), found


def test_a_host_that_does_not_come_back_from_enqueuing_waits_for_no_rank():
    """Nothing is open on its device, in a group that is connected; an open operation may have filled the queue."""
    call = Call(1, "all_reduce", "/job/train.py", 26, "<module>", None, 0)
    stuck = made(c10d("all_reduce"), log=nccl(done=True), calls=(call,))
    assert (standing(stuck).doing, standing(stuck).frame.line) == (Doing.NATIVE, 26)
    full = made(c10d("all_reduce"), log=nccl(done=False), calls=(call,))
    unconnected = made(c10d("all_reduce"), log=nccl(done=True), calls=(replace(call, group="7"),))
    assert standing(full).doing is standing(unconnected).doing is Doing.COLLECTIVE
    unread = made(c10d("all_reduce"), log=nccl(done=True))
    assert standing(unread).doing is Doing.COLLECTIVE, "it may be in a group that no recorder knows yet"
    ends = made(c10d("destroy_process_group"), log=nccl(done=True), calls=(call,))
    assert standing(ends).doing is Doing.COLLECTIVE, "it may wait for those that have not come to their end"


def test_somebody_elses_stack_tells_only_whether_it_was_on_a_cpu():
    look = Look(T, process=ProcessState(state="?"), threads=(thread(1003, c10d("all_reduce")),))
    found = stand(RankDump(3, 1003, 1, "n", (look,)), None, Dump("x", T))
    assert found.doing is Doing.COLLECTIVE
    asleep = Look(T, process=ProcessState(state="?"), threads=(thread(1003, (user(7), *BOOT)),))
    found = stand(RankDump(3, 1003, 1, "n", (asleep,)), None, Dump("x", T))
    assert found.doing is Doing.PYTHON and not found.sure


def test_nothing_at_all_is_no_error():
    assert stand(RankDump(0, 0, 0, "", ()), None, Dump("x")).doing is Doing.ENDED
    empty = Look(T, process=ProcessState(state="S"), threads=(Thread(1, 1, "", False, False, ()),))
    assert stand(RankDump(0, 1, 0, "", (empty,)), None, Dump("x")).doing is Doing.PYTHON
    odd = Look(T, process=ProcessState(state="3", cpu_s=1), threads=(thread(1, (Frame("", "", 0),)),))
    assert not stand(RankDump(0, 1, 0, "", (odd,)), None, Dump("x")).sure


def with_gil(frames, *, active=False, name="Thread-1"):
    def build(pid):
        return replace(thread(pid, frames, os_id=pid + 1, name=name), holds_gil=True, active=active)

    return build


METRICS = (frame("write_metrics", line=9), frame("Thread.run", f"{LIB}/threading.py", 975))


@pytest.mark.parametrize("native", [("take_gil",), ()])
def test_a_thread_that_is_blocked_in_c_and_keeps_the_gil_is_where_its_rank_stands(native):
    """The main thread waits in an event, or for the GIL after a collective that is complete."""
    frames = EVENT if not native else c10d("all_reduce")
    found = standing(made(frames, threads=(with_gil(METRICS),), native=native))
    assert (found.doing, found.frame.line, found.thread) == (Doing.NATIVE, 9, "thread Thread-1")


@pytest.mark.parametrize(("frames", "active"), [(EVENT, True), (c10d("all_reduce"), False)])
def test_a_thread_that_computes_gives_the_gil_away_and_a_collective_needs_none(frames, active):
    log = recorder(SIGNATURES, history(9, waiting=True))
    found = standing(made(frames, threads=(with_gil(METRICS, active=active),), log=log))
    assert found.doing is not Doing.NATIVE


def test_the_rank_that_holds_the_lock_is_named():
    lock = {
        "state": "S",
        "syscall": "flock",
        "target": "file /cache, locked by pid 1000 (python)",
        "holders": [1000, 7],
    }
    ranks = {0: rank_dump(0, WAITS), 1: rank_dump(1, SLEEPS, process=lock), 2: rank_dump(2, SLEEPS, process=lock)}
    dump = made_dump(ranks)
    assert "locked by pid 1000 (python) (rank 0)" in stand(ranks[1], None, dump).phrase
    assert "rank 0" not in stand(ranks[2], None, dump).phrase, "it is on another node"
    assert stand(ranks[1], None, dump).doing is Doing.IO, "another process has locked it, too"
