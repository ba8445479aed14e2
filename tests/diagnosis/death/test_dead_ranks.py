"""Each check of dead ranks: what it must find, and its healthy twin in which it must not."""

import json
import re
from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.recorder.calls import Call
from distdbg.model import CauseClass
from tests.made_dump import made_dump, rank_dump
from tests.made_run import GLOO_LOST, MadeRun, traceback_text


def verdict(report):
    return [(f.id, f.ranks) for f in report.findings if f.explained_by is None]


def explained(report):
    return [(f.id, f.ranks, f.explained_by) for f in report.findings if f.explained_by is not None]


@pytest.fixture
def run(tmp_path):
    return MadeRun(tmp_path)


def test_healthy_run_has_no_findings(run):
    for rank in range(4):
        run.script_end(rank)
        run.prints(rank, "UserWarning: Connection reset by peer in a retried download\nTraceback is not this\n")
    run.rest(0)
    report = run.closes().report()
    assert report.findings == ()
    assert (report.outcome, report.exit_code, report.unknown) == ("succeeded", 0, ())


# -- rank-exception -----------------------------------------------------------------------------------------------


def test_the_root_is_not_who_exited_first(run):
    """Rank 1 raises, cleans up and sleeps; rank 0 dies first, of a closed connection."""
    run.handles(1, "RuntimeError", "planted in rank 1", t=9.1)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.0)
    run.exits(1, -15, t=12.0, asked=9.5)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert explained(report) == [("rank-exception", (0,), "rank-exception")]
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 1, "rank 1")
    root = report.findings[0]
    assert root.cause_class is CauseClass.EXCEPTION_IN_FLIGHT
    assert "planted in rank 1" in root.summary and "train.py:88 in step" in root.summary
    assert root.evidence[0].quote.startswith("Traceback (most recent call last):")


def test_what_others_were_handling_is_no_root_beside_an_error_of_its_own(run):
    """Two poll for a file that the third was to write."""
    run.raises(1, "ValueError", "line 17 is no JSON", t=9.0)
    for rank in (0, 2):
        run.handles(rank, "FileNotFoundError", "no such file: 'vocabulary.json'", t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert (report.findings[0].ranks, report.findings[0].confidence) == ((1,), "certain")
    assert (report.exit_code, report.exit_code_of) == (1, "rank 1")
    polling = report.findings[1]
    assert (polling.ranks, polling.severity, polling.cause_class) == ((0, 2), "info", CauseClass.OBSERVATION)
    assert "still handling it when another rank failed" in polling.summary and "Not certain" in polling.cause
    assert [r.state for r in report.ranks if r.rank != 1] == ["stopped (SIGTERM)"] * 3


def test_the_same_error_in_flight_and_uncaught_is_one_finding(run):
    run.raises(1, "RuntimeError", "loss is nan", t=9.0)
    run.handles(2, "RuntimeError", "loss is nan", t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-exception", (1, 2))]


@pytest.mark.parametrize(("handling", "root"), [((2,), (2,)), ((2, 3), (1,))], ids=["one", "the same on two"])
def test_beside_a_mere_exit_code_an_error_in_flight_is_the_root_where_one_rank_has_it(run, handling, root):
    """Who has lost its peers may say so and call sys.exit(1)."""
    run.exits(1, 1, t=9.0)
    for rank in handling:
        run.handles(rank, "OSError", "disk quota exceeded", t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    assert run.closes().report().findings[0].ranks == root


def test_an_import_that_is_under_way_handles_no_error(run):
    """importlib looks a folder up in a cache, and a KeyError says that it is not there."""
    run.exits(1, 1, t=9.0)
    line = '  File "<frozen importlib._bootstrap_external>", line 1437, in _path_importer_cache\n'
    run.handles(
        2, "KeyError", "'/lib/x'", t=9.1, traceback=f"Traceback (most recent call last):\n{line}KeyError: '/lib/x'\n"
    )
    run.rest(-15, t=11.5, asked=9.5)
    assert [f.ranks for f in run.closes().report().findings] == [(1,)]


def test_a_training_below_an_except_is_not_the_root_of_a_kill(run):
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    for rank in (0, 2):
        start = traceback_text("FileNotFoundError", "no such file: 'last.pt'") + during
        run.raises(rank, "RuntimeError", GLOO_LOST, before=start, t=9.1)
    run.exits(1, -9, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-killed", (1,))]
    assert explained(report) == [("rank-exception", (0, 2), "rank-killed")]
    assert (report.exit_code, report.exit_code_of) == (137, "rank 1")
    assert "failed in communication" in report.findings[1].summary


def test_ordinary_exceptions_in_flight_mean_nothing(run):
    run.handles(1, "queue.Empty", "")
    run.handles(2, "RuntimeError", "of a helper thread", thread="Thread-3")
    run.raises(0, "ValueError", "the real one", t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-exception", (0,))]


def test_the_same_exception_everywhere_is_one_finding(run):
    for rank in range(4):
        run.raises(rank, "RuntimeError", f"loss is nan at step {rank}", t=9.0 + rank / 10)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (0, 1, 2, 3))]
    assert report.findings[0].summary.startswith("all 4 ranks raised the same RuntimeError")


def test_a_victim_that_raises_late_is_explained(run):
    run.raises(0, "KeyError", "'batch 17'", t=9.0)
    run.raises(2, "RuntimeError", "interrupted while saving", t=10.0, asked=9.5)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (0,))]
    assert explained(report) == [("rank-exception", (2,), "rank-exception")]


def test_cleaning_up_after_its_own_error_it_met_lost_peers(run):
    text = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 10, in main\n    x = d["a"]\n'
        "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 12, in main\n    dist.barrier()\n'
        f"RuntimeError: {GLOO_LOST}\n"
    )
    run.prints(1, "step 4\n" + text)
    run.exits(1, 1, t=9.0)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.9)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert "KeyError: 'a'" in report.findings[0].summary
    assert report.findings[0].confidence == "likely"
    assert report.findings[0].evidence[0].line == 2


def test_the_same_as_the_worker_side_reports_it(run):
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    run.raises(1, "RuntimeError", GLOO_LOST, before=traceback_text("KeyError", "'a'") + during, t=9.0)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.9)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert "KeyError: 'a'" in report.findings[0].summary
    assert report.findings[0].evidence[0].quote.count("Traceback") == 2


def test_a_direct_cause_tells_more_than_its_consequence(run):
    """A full /dev/shm kills a DataLoader worker; the loader says it in two exceptions, the plain one last."""
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    bus = traceback_text("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible")
    run.raises(1, "RuntimeError", "DataLoader worker (pid(s) 7) exited unexpectedly", before=bus + cause, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    assert verdict(run.closes().report()) == [("shm-exhausted", (1,))]


def test_an_error_raised_because_of_a_lost_connection_is_a_consequence(run):
    text = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in main\n    work.wait()\n'
        f"RuntimeError: {GLOO_LOST}\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 12, in main\n    raise\n'
        "TrainingFailed: step 3\n"
    )
    run.prints(0, text)
    run.exits(0, 1, t=8.9)
    run.exits(2, -9, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-killed", (2,))]
    assert explained(report) == [("rank-exception", (0,), "rank-killed")]


def test_only_lost_connections_and_no_root_is_only_possible(run):
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    root = run.closes().report().findings[0]
    assert (root.id, root.confidence, root.cause_class) == ("rank-exception", "possible", CauseClass.COMMUNICATION)
    assert "Ranks 1-3" in root.cause


def test_a_bare_exit_code(run):
    run.script_end(3, "SystemExit", t=9.0, code=7)
    run.prints(3, "bye\n")
    run.exits(3, 7, t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (3,))]
    assert "sys.exit(7)" in report.findings[0].summary
    assert (report.exit_code, report.exit_code_of) == (7, "rank 3")


HANDLED = traceback_text("ConnectionError", "the metrics server is down")


@pytest.mark.parametrize("how", ["SystemExit", ""])
def test_a_traceback_above_the_last_words_is_not_why_the_script_called_exit(run, how):
    run.prints(1, f"{HANDLED}going on without metrics\nloss is NaN at step 40: giving up\n")
    if how:
        run.script_end(1, how, t=9.0, code=3)
    run.exits(1, 3, t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    root = report.findings[0]
    assert (root.id, root.ranks, report.exit_code) == ("rank-exception", (1,), 3)
    if how:
        assert "sys.exit(3)" in root.summary and "loss is NaN at step 40: giving up" in root.summary
        assert "ConnectionError: the metrics server is down at train.py:88" in root.cause
        assert (root.confidence, root.evidence[0].quote.count("\n")) == ("likely", 1)
    else:  # nobody knows how it ended
        assert "ConnectionError" in root.summary


def test_a_traceback_that_is_the_last_word_before_exit_is_possible(run):
    run.prints(1, HANDLED + "\n[rank1]:[W1121 05:26:21.1 ProcessGroupNCCL.cpp:1] Warning: not destroyed\n")
    run.script_end(1, "SystemExit", t=9.0, code=1)
    run.exits(1, 1, t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    root = run.closes().report().findings[0]
    assert "ConnectionError" in root.summary and (root.ranks, root.confidence) == ((1,), "possible")


def test_a_lost_connection_that_is_printed_before_exit_is_a_consequence(run):
    run.prints(0, traceback_text("RuntimeError", GLOO_LOST) + "giving up\n")
    run.script_end(0, "SystemExit", t=9.1, code=1)
    run.exits(0, 1, t=9.2)
    run.exits(1, -9, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-killed", (1,))]


def test_torchelastics_error_file_where_nothing_else_speaks(run):
    extra = {"py_callstack": traceback_text("ValueError", "from the file"), "timestamp": "1790000009"}
    inner = {"message": "ValueError: from the file", "extraInfo": extra}
    run.files(2).error.write_text(json.dumps({"message": inner}))
    run.exits(2, 1, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    root = run.closes().report().findings[0]
    assert (root.id, root.ranks) == ("rank-exception", (2,))
    assert root.evidence[0].path.endswith("ranks/00002/error.json")


# -- signals and memory -------------------------------------------------------------------------------------------


def test_killed_from_outside_says_why_the_sender_is_unknown(run):
    run.exits(3, -9, t=9.0, step=412)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.1)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes(kernel_because="/dev/kmsg cannot be read: Operation not permitted").report()
    assert verdict(report) == [("rank-killed", (3,))]
    assert "SIGKILL at step 412" in report.findings[0].summary
    assert "/dev/kmsg cannot be read" in report.findings[0].cause
    assert (report.exit_code, report.exit_code_of) == (137, "rank 3")


def test_rank_killed_names_the_memory_kills_of_other_pids(run):
    """In a container the kernel's message may be about this rank, under the pid that it has outside."""
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.5, asked=9.5)
    root = run.closes(kernel=[(OTHER.format(28855, "python"), run.t0 + 9.0)]).report().findings[0]
    assert (root.id, root.ranks) == ("rank-killed", (3,))
    assert "a memory kill of process 28855 (python) and none with this process's pid" in root.cause
    assert "in its agent's control group stayed at 0" in root.cause


def test_stopped_ranks_are_no_findings(run):
    run.raises(0, "ValueError", "boom", t=9.0)
    run.exits(1, -9, t=40.0, asked=9.5)
    run.rest(-15, t=11.5, asked=9.5)
    report = run.closes().report()
    assert [f.id for f in report.findings] == ["rank-exception"]
    assert [r.state for r in report.ranks] == [
        "failed (exit code 1)", "stopped (SIGKILL)", "stopped (SIGTERM)", "stopped (SIGTERM)"]  # fmt: skip


def test_ranks_that_torchrun_ended_by_itself_are_victims(run):
    """On another node than the failing one the agent may not know: torchrun's own words do."""
    run.raises(0, "ValueError", "boom", t=9.0)
    run.node_files[1].torchrun_log.write_text(
        "W1121 05:26:21 api.py:1028] Sending process 1002 closing signal SIGTERM\n"
        "W1121 05:26:21 api.py:1028] Sending process 1003 closing signal SIGTERM\n"
    )
    run.rest(-15, t=11.0)
    run.exits(1, -15, t=11.0, asked=9.5)
    assert [f.id for f in run.closes().report().findings] == ["rank-exception"]


def test_a_sigterm_from_outside_is_a_cause(run):
    run.exits(1, -15, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-killed", (1,))]
    assert report.exit_code == 143


def test_segfault_shows_faulthandlers_stack(run):
    run.prints(
        0,
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb893de3b80 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/home/me/train.py", line 19 in <module>\n\nExtension modules: numpy (total: 13)\n',
    )
    run.exits(0, -11, t=9.0)
    run.raises(1, "RuntimeError", GLOO_LOST, t=9.1)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("rank-killed", (0,))]
    root = report.findings[0]
    assert "SIGSEGV" in root.summary and "train.py:19 in <module>" in root.summary
    assert "string_at" in root.evidence[0].quote
    assert report.exit_code == 139


def test_host_oom_by_the_kernels_message(run):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    message = ["Memory cgroup out of memory: Killed process 1003 (python) total-vm:9kB, anon-rss:8388608kB", 1.0]
    report = run.closes(kernel=[message]).report()
    assert verdict(report) == [("host-oom", (3,))]
    assert report.findings[0].confidence == "certain"


def test_pid_of_another_namespace_names_no_rank(run):
    """In a container, the kernel's process 1003 is not the container's."""
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    message = (OTHER.format(1003, "python"), run.t0 + 8.9)
    root = run.closes(kernel=[message], own_pids=False).report().findings[0]
    assert (root.id, root.ranks) == ("rank-killed", (3,)) and "number the processes of this container" in root.cause


@pytest.mark.parametrize("pid", [1003, 1002, 48211])
def test_in_a_container_the_counter_decides(run, pid):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    message = (OTHER.format(pid, "python"), run.t0 + 8.9)
    root = run.closes(oom_after=1, kernel=[message], own_pids=False).report().findings[0]
    assert (root.id, root.confidence, root.ranks) == ("host-oom", "likely", (3,))


def test_host_oom_by_the_counter_is_likely(run):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes(oom_after=1).report()
    assert verdict(report) == [("host-oom", (3,))]
    assert (report.findings[0].confidence, report.exit_code) == ("likely", 137)


OTHER = "Memory cgroup out of memory: Killed process {} ({}) total-vm:9kB, anon-rss:8388608kB"


@pytest.mark.parametrize(
    ("pid", "name", "before", "expected"),
    [
        (77, "python", 2.0, ("host-oom", "possible")),  # a container's pids may be others
        (77, "python", 300.0, ("rank-killed", "certain")),  # long before
        (77, "pt_data_worker", 2.0, ("rank-killed", "certain")),
        (1002, "python", 2.0, ("rank-killed", "certain")),  # another rank's, by its own number
    ],
)
def test_a_kill_of_another_process_is_not_taken_for_the_ranks(run, pid, name, before, expected):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    message = (OTHER.format(pid, name), run.t0 + 9.0 - before)
    root = run.closes(oom_after=1, kernel=[message]).report().findings[0]
    assert (root.id, root.confidence, root.ranks) == (*expected, (3,))
    assert f"process {pid} ({name})" in root.summary + root.cause


def test_a_kill_that_no_message_names_stays_likely(run):
    """The counter rose by two, and the kernel's ring has only one message left."""
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    message = (OTHER.format(77, "pt_data_worker"), run.t0 + 8.0)
    root = run.closes(oom_after=2, kernel=[message]).report().findings[0]
    assert (root.id, root.confidence) == ("host-oom", "likely")


def containers(run, **counters):
    """Every agent's looks as a container gives them: no kernel messages, and of its group what is in `counters`."""
    run.closes(kernel_because="/dev/kmsg cannot be read: No such file or directory")
    for files in run.node_files:
        events = [json.loads(line) for line in files.events.read_text().splitlines()]
        groups = [event for event in events if event["event"] == "cgroup"]
        for event, seen in zip(groups, zip(*counters.values(), strict=True), strict=True):
            event.pop("limit")
            event.update(dict(zip(counters, seen, strict=True)))
        files.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    return run.report()


def test_in_a_container_that_shows_nothing_the_reason_is_unknown(run):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    because = "/sys/fs/cgroup/memory.events cannot be read"
    root = containers(run, oom_kill=(None, None), because=(because, because)).findings[0]
    assert (root.id, root.ranks) == ("rank-killed", (3,))
    assert "sender" in root.cause
    assert "/dev/kmsg cannot be read" in root.cause and because in root.cause
    assert "3.00 GiB" in root.cause and "memory" in root.remedy


def test_in_a_container_that_shows_its_own_counter_it_is_likely(run):
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    root = containers(run, oom_kill=(4, 5), limit=(4 << 30, 4 << 30)).findings[0]
    assert (root.id, root.ranks, root.confidence) == ("host-oom", (3,), "likely")
    assert "4 to 5" in root.summary
    assert "3.00 GiB" in root.cause and "4.00 GiB" in root.cause


SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed."


def by_slurm(run, *lines, t=12.3, counter=None):
    """Rank 3 of node 1 is killed, its group's counter is not seen, and srun's standard error had these lines."""
    run.exits(3, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    run.closes(oom_after=counter)
    run.launcher("slurm-memory", t=t, lines=list(lines))
    return run.report().findings[0]


def test_host_oom_by_slurms_own_words_is_likely(run):
    root = by_slurm(run, SLURM, "srun: error: node1: task 1: Out Of Memory")
    assert (root.id, root.ranks, root.confidence) == ("host-oom", (3,), "likely")
    assert "Slurm tells of a kill for memory on its node, and names no process" in root.summary
    assert root.evidence[0].path == "events.jsonl" and root.evidence[0].quote.endswith("task 1: Out Of Memory")
    assert "slurm-memory" in run.dir.events.read_text().splitlines()[root.evidence[0].line - 1]


def test_slurms_words_that_name_no_node_are_said_to(run):
    root = by_slurm(run, SLURM)
    assert (root.id, root.confidence) == ("host-oom", "likely") and "on a node that it does not name" in root.summary


def test_more_ranks_were_killed_than_slurm_speaks_of(run):
    run.exits(0, -9, t=9.0)
    assert by_slurm(run, SLURM).confidence == "possible"


def test_a_counter_that_stayed_makes_slurms_words_doubtful(run):
    assert by_slurm(run, SLURM, "srun: error: node1: task 1: Out Of Memory", counter=0).confidence == "possible"


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ((SLURM, "srun: error: node0: task 0: Out Of Memory"), {}),  # another node's
        ((SLURM,), {"t": 0.5}),  # of a step before
        ((SLURM,), {"counter": 0}),  # this node's group has killed nobody
    ],
)
def test_slurms_words_on_something_else_explain_nothing(run, lines, more):
    assert by_slurm(run, *lines, **more).id == "rank-killed"


def test_host_oom_tells_who_grew_since_when_and_what_it_was_doing(run):
    run.exits(3, -9, t=9.0, step=400)
    run.rest(-15, t=11.0, asked=9.5)
    with run.node_files[1].metrics.open("w") as file:
        for step in range(0, 400, 10):
            own = [{"rank": 2, "step": step, "anon": 9 << 30, "epochs": 0},
                   {"rank": 3, "step": step, "anon": (1 << 30) + step * (5 << 20), "epochs": 0}]  # fmt: skip
            file.write(json.dumps({"t": step, "ranks": own}) + "\n")
    cause = run.closes(oom_after=1).report().findings[0].cause
    assert "backward of step 400" in cause
    assert "5.00 MiB a step" in cause
    assert "1.00 GiB at step 0, 2.90 GiB at step 390" in cause
    assert "Rank 2" in cause and "9.00 GiB" in cause


def test_a_risen_counter_without_a_sigkill_is_no_oom(run):
    run.raises(0, "ValueError", "boom")
    run.rest(-15, t=11.0, asked=9.5)
    assert [f.id for f in run.closes(oom_after=1).report().findings] == ["rank-exception"]


# -- leaving early ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "confidence"), [({"0": [0, 1, 2, 3]}, "certain"), ({}, "likely")])
def test_a_rank_that_leaves_early(run, groups, confidence):
    run.script_end(1, "SystemExit", t=8.0)
    run.exits(1, 0, t=8.3, step=3)
    for rank in (0, 2, 3):
        has_made(run, rank, groups)
        run.raises(rank, "RuntimeError", GLOO_LOST, t=8.2 + rank / 100, step=4)
    report = run.closes().report()
    assert verdict(report) == [("rank-exited-early", (1,))]
    assert (report.outcome, report.exit_code) == ("failed", 1)
    assert report.findings[0].confidence == confidence
    assert [e for *_, e in explained(report)] == ["rank-exited-early"]


def has_made(run, rank, groups):
    for name, ranks in groups.items():
        run.fact(rank, op="fact", kind="group", name=name, ranks=ranks)


BARRIER = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms\n Original exception: \nTimed out waiting"
KEYS = "wait timeout after 3000ms, keys: /default_pg/0//epoch-1"


@pytest.mark.parametrize(
    ("group", "message", "line", "left", "early"),
    [
        ("1", BARRIER, 88, 2, 3),  # rank 2 had done its part, and is not in the group; number 1 is rank 3
        ("1", KEYS, 80, 2, None),
        ("1", GLOO_LOST, 88, 2, None),
        ("1", GLOO_LOST, 80, 2, "likely"),  # it failed in something else than its last call: in any of its groups
        ("1", BARRIER, 88, 3, "certain"),  # number 1 of the group is rank 3
        ("", BARRIER, 88, 3, 1),  # number 1 is rank 1
        ("", KEYS, 80, 3, "likely"),
        ("", GLOO_LOST, 88, 3, "certain"),
    ],
)
def test_only_who_was_needed_has_left_early(run, group, message, line, left, early):
    has_made(run, 0, {"0": [0, 1, 2, 3], "1": [0, 3]})
    run.script_end(left, "SystemExit", t=2.0)
    run.exits(left, 0, t=2.2)
    run.raises(0, "RuntimeError", message, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    last = Call(0, "monitored_barrier", "/home/me/train.py", line, "step", group=group)
    dump = made_dump({0: replace(rank_dump(0), calls=(last,))})
    report = build_report(replace(run.closes().evidence(), dump=replace(dump, reason="death")))
    root = report.findings[0]
    if early is None:
        assert (root.id, root.ranks, root.confidence) == ("rank-exception", (0,), "possible")
    elif isinstance(early, int):
        assert (root.id, root.ranks, root.confidence) == ("collective-not-joined", (early,), "likely")
        assert (report.exit_code, report.exit_code_of) == (1, "rank 0")
    else:
        assert (root.id, root.ranks, root.confidence) == ("rank-exited-early", (left,), early)


def test_a_rank_that_leaves_early_and_aborts_on_its_way_out(run):
    run.script_end(1, "SystemExit", t=8.0)
    run.handles(1, "SystemExit", "0", t=8.1)
    run.prints(1, "terminate called without an active exception\n")
    run.exits(1, -6, t=8.3, step=3)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.2, code=-15, asked=8.4)
    run.rest(-15, t=9.0, asked=8.4)
    report = run.closes().report()
    assert [f for f in verdict(report) if f[0] != "abort-at-exit"] == [("rank-exited-early", (1,))]
    assert (report.exit_code, report.exit_code_of) == (1, "rank 0")


def test_an_exit_code_that_an_abort_hides(run):
    run.script_end(1, "SystemExit", t=8.0, code=7)
    run.prints(1, "terminate called without an active exception\n")
    run.exits(1, -6, t=8.3)
    run.rest(-15, t=9.0, asked=8.4)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert "sys.exit(7)" in report.findings[0].summary


def test_different_ends_in_a_successful_job_are_not_early(run):
    for rank in range(4):
        run.script_end(rank, "SystemExit" if rank == 1 else "returned", t=5.0 + rank)
        run.exits(rank, 0, t=5.2 + rank)
    assert run.closes().report().findings == ()


def test_finished_ranks_are_not_blamed_for_anothers_error(run):
    run.script_end(1, t=5.0)
    run.exits(1, 0, t=5.1)
    run.raises(0, "ValueError", "boom", t=9.0)
    run.raises(2, "RuntimeError", GLOO_LOST, t=9.1)
    run.rest(-15, t=11.0, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-exception", (0,))]


def test_who_left_after_the_first_symptom_is_not_early(run):
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.0)
    run.script_end(1, "SystemExit", t=9.0)
    run.exits(1, 0, t=9.1)
    run.rest(-15, t=11.0, asked=9.5)
    assert "rank-exited-early" not in {f.id for f in run.closes().report().findings}


# -- kinds by message ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message", "finding"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 22.00 MiB.", "cuda-oom"),
        ("RuntimeError", "CUDA error: device-side assert triggered", "cuda-error"),
        ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1, unhandled cuda error (run with)", "nccl-error"),
        ("RuntimeError", "DataLoader worker (pid 46794) is killed by signal: Killed. ", "loader-worker-died"),
        ("RuntimeError", "DataLoader worker (pid 4) is killed by signal: Bus error. It is", "shm-exhausted"),
        ("RuntimeError", "Expected to have finished reduction in the prior iteration before starting a new one.",
         "unused-parameters"),
    ],
)  # fmt: skip
def test_kinds(run, kind, message, finding):
    run.raises(2, kind, message, t=9.0)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.9)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [(finding, (2,))]
    assert report.findings[0].remedy and report.findings[0].cause


def test_cuda_error_advises_sync_crash(run):
    run.raises(2, "RuntimeError", "CUDA error: an illegal memory access was encountered", t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    assert "--preset sync-crash" in run.closes().report().findings[0].remedy


def test_loader_worker_and_a_memory_kill(run):
    run.raises(2, "RuntimeError", "DataLoader worker (pid(s) 9793) exited unexpectedly", t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    assert "0 to 1" in run.closes(oom_after=1).report().findings[0].cause


def test_the_worker_that_grew_is_named_with_what_the_kernel_says_of_it(run):
    """Two workers of rank 2, of which one keeps what it loads, and others that are as they were."""
    run.raises(2, "RuntimeError", "DataLoader worker (pid 9793) is killed by signal: Killed. ", t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    with run.node_files[1].metrics.open("w") as file:
        for step in range(0, 400, 10):
            keeps = (1 << 30) + max(0, step - 100) * (20 << 20)
            workers = [[9793, keeps, "pt_data_worker"], [9794, 1 << 30, "pt_data_worker"], ["x", 1, ""], [7]]
            ranks = [{"rank": 2, "step": step, "anon": 2 << 30, "children": workers}]
            file.write(json.dumps({"t": step, "ranks": ranks}) + "\n")
    killed = "Memory cgroup out of memory: Killed process 9793 (pt_data_worker) anon-rss:6900000kB"
    found, growth = run.closes(oom_after=1, kernel=((killed, 9.0),)).report().verdict
    assert (found.id, found.ranks, growth.id) == ("loader-worker-died", (2,), "host-memory-growth")
    assert "worker 9793" in found.cause
    assert "6.66 GiB at step 390" in found.cause
    assert "1.00 GiB to 6.66 GiB since step 120" in found.cause
    assert any(cited.quote == killed for cited in found.evidence)


def test_a_rank_that_was_killed_while_its_worker_grew(run):
    run.exits(3, -9, t=9.0, step=400)
    run.rest(-15, t=11.0, asked=9.5)
    with run.node_files[1].metrics.open("w") as file:
        for step in range(0, 400, 10):
            children = [[50, (1 << 30) + step * (20 << 20), "python3"], [51, (1 << 30) - step, "python3"]]
            ranks = [{"rank": 3, "step": step, "anon": 1 << 30, "children": children}]
            file.write(json.dumps({"t": step, "ranks": ranks}) + "\n")
    root = run.closes(oom_after=1).report().findings[0]
    assert root.id == "host-oom"
    assert "50 (python3)" in root.cause and "1.00 GiB to 8.62 GiB since step 30" in root.cause


def test_nccl_timeout_names_nccls_own_warning_and_is_a_consequence(run):
    said = "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(Seq"
    run.prints(
        0, said + "Num=1)\nterminate called after throwing an instance of 'c10::DistBackendError'\n  what(): x\n"
    )
    run.files(0).nccl.write_text("node0:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 1 failed\n")
    run.exits(0, -6, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("nccl-error", (0,))]
    assert report.findings[0].cause_class is CauseClass.COMMUNICATION
    assert "socketStartConnect" in report.findings[0].cause
    assert report.exit_code == 134


def test_nccls_error_on_a_living_rank_is_no_second_cause_beside_a_rank_that_was_killed(run):
    run.prints(
        0,
        "[rank0]:[E1127 13:05:17.692688174 ProcessGroupNCCL.cpp:645] [Rank 0] Collective WorkNCCL(SeqNum=6, "
        "OpType=ALLREDUCE, NumelIn=16, NumelOut=16, Timeout(ms)=12000) raised the following async exception: NCCL "
        "error: remote process exited or there was a network error, NCCL version 2.29.7\nLast error:\n"
        "socketProgress: Connection closed by remote peer 10.0.0.1<52389>\n\n"
        "[rank0]:[E1127 13:05:17.693822394 ProcessGroupNCCL.cpp:2372] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure "
        "detected by watchdog at work sequence id: 6 PG status: last enqueued work: 6, last started work: -1 (), last "
        "completed work: 5\n",
    )
    run.exits(1, -9, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-killed", (1,))]


def test_who_is_aborted_by_a_mismatch_may_be_a_victim_and_still_tells_more_than_a_lost_connection(run):
    run.prints(0, "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at "
               "gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2000 vs 1000. Received data size "
               "doesn't match expected size.\n")  # fmt: skip
    run.exits(0, -6, t=9.1)
    run.raises(1, "RuntimeError", GLOO_LOST, t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    report = run.closes().report()
    assert verdict(report) == [("collective-shape-mismatch", (0,))]
    assert (report.findings[0].confidence, report.exit_code) == ("possible", 134)


# -- the start ----------------------------------------------------------------------------------------------------


def test_import_error_is_said_once(run):
    for rank in range(4):
        run.raises(rank, "ModuleNotFoundError", "No module named 'apex'", t=2.0 + rank / 10, step=None)
    report = run.closes().report()
    assert verdict(report) == [("launch-failed", (0, 1, 2, 3))]
    assert report.findings[0].summary.startswith("all 4 ranks could not start")


def test_import_error_on_one_node_says_so(run):
    for rank in (2, 3):
        run.raises(rank, "ModuleNotFoundError", "No module named 'apex'", t=2.0, step=None)
    run.rest(-15, t=4.0, asked=3.0)
    report = run.closes().report()
    assert verdict(report) == [("launch-failed", (2, 3))]
    assert "Only on node1" in report.findings[0].cause


def test_an_import_in_the_middle_is_an_exception(run):
    run.raises(0, "ImportError", "cannot import name 'x'", t=9.0, step=400)
    run.rest(-15, t=11.0, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-exception", (0,))]


def test_syntax_error_without_a_traceback(run):
    for rank in range(4):
        run.prints(rank, '  File "/home/me/train.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n')
        run.exits(rank, 1, t=2.0, step=None)
    report = run.closes().report()
    assert verdict(report) == [("launch-failed", (0, 1, 2, 3))]
    assert "train.py:1" in report.findings[0].summary


def test_torchrun_that_started_no_rank(tmp_path):
    run = MadeRun(tmp_path, ranks=0, nodes=2)
    for files in run.node_files:
        files.torchrun_log.write_text(
            'Traceback (most recent call last):\n  File "/venv/torch/distributed/run.py", line 1032, in <module>\n'
            "    main()\ntorch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
        )
    report = run.closes(torchrun=1).report()
    assert [f.id for f in report.findings] == ["launch-failed"]
    assert "[rendezvous-timeout]" in report.findings[0].cause
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 1, "torchrun on node 0")


def test_a_port_that_is_taken(tmp_path):
    run = MadeRun(tmp_path, ranks=0, nodes=1)
    busy = "The server socket has failed to listen on any local network address. port: 29477, name: EADDRINUSE"
    run.node_files[0].torchrun_log.write_text(
        traceback_text("torch.distributed.DistNetworkError", busy, file="/venv/lib/python3.11/site-packages/torch/x.py")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + traceback_text("RendezvousConnectionError", "The connection to the C10d store has failed.")
    )
    root = run.closes(torchrun=1).report().findings[0]
    assert "[address-in-use]" in root.cause and "port: 29477" in root.summary


def test_cancelled_before_it_started(tmp_path):
    run = MadeRun(tmp_path, ranks=0, nodes=1)
    run.launcher("cancelled", t=5, by="SIGINT")
    report = run.closes(torchrun=-15).report()
    assert (report.outcome, report.exit_code, report.findings) == ("cancelled", 130, ())


def test_cancelled_while_it_complained_of_a_name(tmp_path):
    run = MadeRun(tmp_path, ranks=0, nodes=1)
    run.launcher("cancelled", t=5, by="SIGTERM")
    complaint = "[c10d] The IPv6 network addresses of (nosuch, 29400) cannot be retrieved (gai error: -2 - Name"
    run.node_files[0].torchrun_log.write_text(f"[W1121 06:16:01.73 socket.cpp:764] {complaint}\nframe #1: x\n")
    report = run.closes(torchrun=-15).report()
    assert (report.outcome, report.exit_code) == ("cancelled", 143)
    assert complaint in report.findings[0].summary and "[name-not-resolved]" in report.findings[0].cause


def test_torch_missing(tmp_path):
    run = MadeRun(tmp_path, ranks=0, nodes=1)
    run.node_files[0].torchrun_log.write_text(
        "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' "
        "(ModuleNotFoundError: No module named 'torch')\n"
    )
    report = run.closes(torchrun=1).report()
    assert [f.id for f in report.findings] == ["launch-failed"]


# -- nodes, interpreter exit, restarts ----------------------------------------------------------------------------


def test_torchrun_killed_on_a_node(run):
    for rank in (2, 3):
        run.exits(rank, -15, t=9.5, asked=9.2)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.3)
    run.rest(-15, t=11.0, asked=9.5)
    run.closes()
    text = (
        run.node_files[1]
        .events.read_text()
        .replace('"torchrun-exited", "exit_code": 1', '"torchrun-exited", "exit_code": -9')
    )
    run.node_files[1].events.write_text(text)
    report = run.report()
    assert verdict(report) == [("node-lost", (2, 3))]
    assert "SIGKILL" in report.findings[0].summary


def kill_agent_of_node_1(run):
    """Remove its last two events, and let the launcher see it end by SIGKILL."""
    lines = run.node_files[1].events.read_text().splitlines()
    run.node_files[1].events.write_text("\n".join(lines[:-2]) + "\n")
    text = run.dir.events.read_text()
    run.dir.events.write_text(re.sub(r'"node_rank": 1, "exit_code": \d', '"node_rank": 1, "exit_code": -9', text))


def test_killed_agent_loses_the_ranks_without_a_recorded_end(run):
    run.exits(0, 0)
    run.exits(1, 0)
    run.exits(2, 0)
    run.closes(torchrun=0)
    kill_agent_of_node_1(run)
    report = run.report()
    assert verdict(report) == [("node-lost", (3,))]
    assert "killed by SIGKILL" in report.findings[0].summary
    assert (report.outcome, report.exit_code) == ("failed", 76)


def test_agent_killed_after_its_ranks_succeeded_loses_none(run):
    run.rest(0)
    run.closes()
    kill_agent_of_node_1(run)
    report = run.report()
    assert [(f.id, f.severity, f.ranks) for f in report.findings] == [("node-lost", "warning", ())]
    assert (report.outcome, report.exit_code) == ("succeeded", 0)


@pytest.mark.parametrize("lives", [False, True])
def test_slurm_ends_the_job_for_a_failed_node(run, lives):
    """Also where it is Slurm's own daemon there that has died, and our agent still has its last word."""
    run.launcher("cancelled", t=9.0, by="SIGTERM")
    for node in range(2 if lives else 1):
        run.event(node, "stopping", t=9.1)
        run.event(node, "torchrun-exited", t=9.8, exit_code=1, reported={})
        run.event(node, "agent-finished", t=9.9, exit_code=1)
    run.launcher("slurm-node-failure", t=10, hosts=["node1"])
    run.launcher("agents-gone", t=10, exit_codes=[1, 1], cancelled_by="SIGTERM")
    report = run.report()
    assert [(finding.id, finding.ranks) for finding in report.findings] == [("node-lost", (2, 3))]
    assert report.outcome == "failed" and "Slurm found that it had failed" in report.findings[0].summary


def test_an_agents_record_cut_by_a_full_disk_loses_no_node(run):
    run.rest(0)
    run.closes()
    lines = run.node_files[1].events.read_text().splitlines()
    run.node_files[1].events.write_text("\n".join(lines[:-2]) + "\n")
    assert run.report().findings == ()


def test_a_running_job_has_lost_no_node(run):
    report = run.report()
    assert report.findings == ()
    assert report.outcome == "unknown"
    assert {r.state for r in report.ranks} == {"running"}


def test_abort_at_interpreter_exit_is_no_failed_training(run):
    for rank in range(4):
        run.script_end(rank)
    run.prints(2, "terminate called without an active exception\n")
    run.exits(2, -6, t=11.0)
    run.rest(0)
    report = run.closes().report()
    assert [(f.id, f.severity, f.confidence) for f in report.findings] == [("abort-at-exit", "warning", "certain")]
    assert "training is complete" in report.findings[0].cause
    assert (report.exit_code, report.exit_code_of) == (134, "rank 2")


def test_an_abort_at_exit_that_cuts_others_off_is_an_error(run):
    run.script_end(2)
    run.prints(2, "terminate called without an active exception\n")
    run.exits(2, -6, t=11.0)
    run.rest(-15, t=12.0, asked=11.5)
    report = run.closes().report()
    assert [(f.id, f.severity) for f in report.findings] == [("abort-at-exit", "error")]
    assert "ranks 0-1,3" in report.findings[0].cause
    assert (report.outcome, report.exit_code) == ("failed", 134)


def test_an_abort_before_the_scripts_end_is_a_crash(run):
    run.prints(2, "terminate called without an active exception\n")
    run.exits(2, -6, t=11.0)
    run.rest(-15, t=12.0, asked=11.5)
    assert verdict(run.closes().report()) == [("rank-killed", (2,))]


def test_an_earlier_attempt_is_reported(tmp_path):
    first = MadeRun(tmp_path)
    first.exits(3, -9, t=5.0)
    first.rest(-15, t=6.0, asked=5.5)
    second = MadeRun(tmp_path, attempt=2)
    second.rest(0)
    report = second.closes().report()
    assert [(f.id, f.severity, f.ranks) for f in report.findings] == [("restarted", "warning", (3,))]
    assert (report.outcome, report.exit_code) == ("succeeded", 0)
    assert verdict(second.report(attempt=1))[0] == ("rank-killed", (3,))
