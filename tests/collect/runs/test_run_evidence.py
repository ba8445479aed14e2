"""Reading a run directory: whatever is missing, cut short, foreign or hostile is an Unknown, never an exception."""

import json
import os
import random
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdbg.collect.files.bounded_read import read_end
from distdbg.collect.runs.report_files import write_report
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.diagnosis.verdict import build_report
from distdbg.rundir import RunDir
from tests.made_run import GLOO_LOST, T0, MadeRun


@pytest.fixture
def run(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    return run.closes()


def test_a_whole_run(run):
    evidence = run.evidence()
    rank = evidence.ranks[2]
    assert (rank.exit_code, rank.host, rank.local_rank, rank.pid, rank.step) == (1, "node1", 0, 1002, 400)
    assert [(e.type, e.uncaught, e.where) for e in rank.exceptions] == [
        ("ValueError", True, ("/home/me/train.py", 88, "step"))
    ]
    assert evidence.ranks[0].asked_to_stop == T0 + 9.5
    assert evidence.nodes[1].torchrun_exit_code == 1
    assert evidence.nodes[1].cgroup == {"oom_kill": [0, 0], "limit": 8 << 30, "because": ""}
    assert evidence.unknown == ()


def launched_launcher(tmp_path, *lines, attempt=1):
    """A run of one process, which has started two ranks of its own and prints what they print."""
    run = MadeRun(tmp_path, ranks=1, nodes=1, attempt=attempt)
    run.prints(0, "".join(f"{line}\n" for line in lines))
    run.exits(0, 1)
    return run.closes()


def test_ranks_that_a_launcher_has_started_are_told_by_its_streams(tmp_path):
    run = launched_launcher(
        tmp_path,
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/home/me/train.py", line 27, in step',
        "[rank1]:     raise ValueError(names)",
        "[rank1]: ValueError: no batch",
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/home/me/train.py", line 31, in step',
        "[rank0]:     loss.backward()",
        f"[rank0]: RuntimeError: {GLOO_LOST}",
    )
    report = run.report()
    assert [(f.id, f.ranks, f.explained_by) for f in report.findings] == [
        ("rank-exception", (1,), None),
        ("rank-exception", (0,), "rank-exception"),
    ]
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert (report.outcome, report.exit_code) == ("failed", 1)


def test_an_earlier_attempt_says_nothing_of_a_later_ones_launchers(tmp_path):
    before = MadeRun(tmp_path, ranks=1, nodes=1)
    before.raises(0, "ValueError", "no port")
    run = launched_launcher(tmp_path, "[rank1]: ValueError: no batch", "[rank0]: KeyError: 'x'", attempt=2)
    assert [rank.rank for rank in run.report().ranks] == [0, 1]


def test_a_process_whose_streams_show_no_other_rank_is_the_rank(tmp_path):
    run = launched_launcher(tmp_path, "ValueError: no batch", '[rank0]: "of one"')
    assert [(rank.rank, rank.exit_code, rank.pid) for rank in run.evidence().ranks] == [(0, 1, 1000)]


def test_a_driver_of_ray_train_is_no_rank(tmp_path):
    """Nor where the only rank that its streams speak of has its number."""
    run = launched_launcher(
        tmp_path,
        "(TrainController pid=5) - (ip=10.0.0.6, pid=7) world_rank=0, local_rank=0, node_rank=0",
        "(TrainController pid=5) - (ip=10.0.0.6, pid=8) world_rank=1, local_rank=1, node_rank=0",
        "(TrainController pid=5) The actor died unexpectedly before finishing this task.",
        "(TrainController pid=5) \tpid: 7",
        "Traceback (most recent call last):",
        '  File "/home/me/fit.py", line 50, in <module>',
        "    trainer.fit()",
        "ray.train.WorkerGroupError: Training failed due to worker errors:",
    )
    report = run.report()
    assert [(f.id, f.ranks, f.explained_by) for f in report.findings] == [
        ("rank-killed", (0,), None),
        ("launcher-failed", (), "rank-killed"),
    ]


def test_an_empty_directory(tmp_path):
    evidence = load_evidence(RunDir(tmp_path))
    assert evidence.ranks == ()
    whats = [u.what for u in evidence.unknown]
    assert whats == ["what was launched", "whether this report shows a secret of the job", "the ranks"]


def test_exit_files_are_missing_but_the_events_know(run):
    for rank in range(4):
        run.files(rank).exit.unlink()
    assert [r.exit_code for r in run.evidence().ranks] == [-15, -15, 1, -15]


def test_cut_short_by_a_dying_node(run):
    events = run.node_files[0].events
    events.write_bytes(events.read_bytes()[:-20])
    run.files(0).exit.write_text('{"rank": 0, "exit_co')
    whats = [u.what for u in run.evidence().unknown]
    assert whats == ["attempts/1/nodes/0000-node0/events.jsonl, line 11", "attempts/1/ranks/00000/exit.json"]
    assert [f.ranks for f in run.report().findings] == [(2,)]


def test_foreign_files_do_not_block(run):
    for path in (run.files(0).exit, run.files(1).facts, run.files(1).stderr):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    run.files(3).exit.unlink()
    run.files(3).exit.mkdir()
    (run.dir.path / "attempts" / "1" / "ranks" / "7up").write_text("x")
    (run.dir.path / "attempts" / "99notes").mkdir()
    because = {u.what.rpartition("/")[2]: u.because for u in run.evidence(attempt=1).unknown}
    assert because == dict.fromkeys(("exit.json", "facts.jsonl", "stderr.log"), "not a regular file")


def test_evidence_that_exists_and_cannot_be_read_is_unknown(run):
    run.files(0).stderr.write_bytes(bytes(range(128, 256)) * 40)
    run.files(1).stdout.unlink(missing_ok=True)
    run.files(1).stdout.mkdir()
    run.dir.events.unlink()
    run.node_files[1].events.unlink()
    because = {u.what: u.because for u in run.evidence(attempt=1).unknown}
    assert because["attempts/1/ranks/00000/stderr.log"] == "most of it is not text"
    assert because["attempts/1/ranks/00001/stdout.log"] == "not a regular file"
    assert because["events.jsonl"] == because["attempts/1/nodes/0001-node1/events.jsonl"] == "it is missing"


def test_what_had_no_room_is_unknown(run):
    for rank in (0, 1):
        run.fact(rank, op="fact", kind="not-kept", what="heartbeat page", error="No space left on device")
    assert [(u.what, u.because) for u in run.evidence().unknown] == [
        ("heartbeat page of each of ranks 0-1", "its node had no room: No space left on device")
    ]


def test_log_lost_is_unknown(run):
    run.event(0, "log-lost", t=5, rank=1, stream="stdout", bytes=100, because="the file system is full")
    run.event(0, "log-lost", t=6, rank=1, stream="stdout", bytes=23, because="No space left on device")
    assert ("123 bytes of stdout of rank 1", "No space left on device") in [
        (u.what, u.because) for u in run.evidence().unknown
    ]


def test_tails_begin_at_a_line_and_know_its_number(tmp_path):
    path = tmp_path / "stderr.log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1, 20_001)) + b"\xff no newline")
    tail = read_end(path, 1000)
    first = tail.text.split("\n")[0]
    assert first == f"line {tail.first_line}"
    assert tail.text.endswith("\ufffd no newline")
    assert read_end(tmp_path / "none", 10).text == ""


def test_a_thousand_ranks_take_about_a_second(tmp_path):
    run = MadeRun(tmp_path, ranks=1024, nodes=128)
    run.exits(517, -9, t=300)
    for rank in range(0, 1024, 16):
        run.prints(rank, f"[rank{rank}]: log line\n" * 3000)
    run.rest(-15, t=305, asked=301)
    run.closes()
    started = time.process_time()
    evidence = run.evidence()
    report = build_report(evidence)
    write_report(run.dir, report, evidence)
    assert time.process_time() - started < 3  # 0.4 s here; other tests run beside it
    assert report.findings[0].ranks == (517,)
    assert sum(len(r.stderr_tail) + len(r.stdout_tail) for r in evidence.ranks) < 16 << 20


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.binary(max_size=40))
def test_damaged_files_never_raise(tmp_path, rng: random.Random, junk):
    run = MadeRun(Path(tempfile.mkdtemp(dir=tmp_path)))
    run.raises(2, "ValueError", "boom", t=9.0)
    run.handles(1, "KeyError", "'x'")
    run.rest(-15, t=11.0, asked=9.5)
    run.closes()
    files = sorted(p for p in run.dir.path.rglob("*") if p.is_file())
    for path in rng.sample(files, 4):
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(30)] = junk
        path.write_bytes(bytes(data))
    evidence = run.evidence()
    write_report(run.dir, build_report(evidence), evidence)
    assert json.loads(run.dir.report_json.read_text())["schema"] == "distdbg.report/1"


def test_fifos_in_a_run_do_not_block_and_a_run_of_no_size_is_said(run):
    os.mkfifo(run.dir.slurm)
    for path in (run.dir.job, run.files(0).exit, run.files(0).facts):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    evidence = run.evidence()
    unread = {u.what for u in evidence.unknown if u.because == "not a regular file"}
    assert {"job.json", "attempts/1/ranks/00000/exit.json", "attempts/1/ranks/00000/facts.jsonl"} <= unread
    assert run.dir.slurm_job is None


@pytest.mark.parametrize("size", [0, -1, 10**18, "8", True, None])
def test_a_world_size_that_no_job_has(run, size):
    job = run.job()
    job["topology"]["world_size"] = size
    run.dir.job.write_text(json.dumps(job))
    reasons = [u.because for u in run.report().unknown if u.what == "the world size"]
    assert bool(reasons) == (size is not None)


def test_ranks_that_no_job_has_are_named(run):
    (run.dir.attempt(1).folder / "ranks" / "999999999").mkdir()
    (run.dir.attempt(1).folder / "ranks" / "0000").mkdir()
    run.event(0, ["a"], t=3)
    evidence = run.evidence()
    assert max(rank.rank for rank in evidence.ranks) == 3
    whats = [u.what for u in evidence.unknown]
    assert "attempts/1/ranks/999999999" in whats
    assert any(what.startswith("1 line of") for what in whats)


def test_exit_code_that_torchrun_printed_is_used(tmp_path):
    run = MadeRun(tmp_path)
    run.exits(3, None, because="torchrun had collected the process before its exit code was read")
    line = (
        "E1128 05:55:15.448000 23595 api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 1003) of binary: python\n"
    )
    run.node_files[1].torchrun_log.write_text(line)
    report = run.report()
    assert [(f.id, f.ranks) for f in report.findings] == [("rank-killed", (3,))]
    assert report.exit_code == 137


def test_stopped_ranks_do_not_give_the_exit_code_of_an_unknown_one(tmp_path):
    run = MadeRun(tmp_path)
    run.exits(3, None, because="torchrun had collected the process before its exit code was read")
    run.rest(-15, asked=9.0)
    report = run.report()
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", None, None)
