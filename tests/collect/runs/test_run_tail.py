"""What a run's nodes tell, read while it is written."""

import json

from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_status import run_status
from distdbg.collect.runs.run_tail import FileTail, RunTail
from distdbg.rundir import create_run_dir
from tests.made_run import note


def append(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_lines_come_when_they_are_whole(tmp_path):
    tail = FileTail(tmp_path / "x")
    assert tail.lines() == []
    append(tail.path, "a\n\nb")
    assert tail.lines() == [b"a", b""]
    assert tail.lines() == []
    append(tail.path, "c\nd")
    assert tail.lines() == [b"bc"]
    assert tail.rest() == [b"d"]
    assert tail.rest() == []


def test_a_line_without_end_does_not_stop_it(tmp_path):
    tail = FileTail(tmp_path / "x")
    append(tail.path, "x" * (1 << 20) + "y\nz\n")
    assert [len(line) for line in (*tail.lines(), *tail.lines())] == [1 << 20, 1, 1]


def test_events_of_the_newest_attempt(tmp_path):
    run = create_run_dir("x", parent=tmp_path)
    tail = RunTail(run)
    assert tail.poll() == []
    first = run.attempt(1).node(0, "a")
    append(first.events, '{"event": "one"}\nnot json\n')
    append(run.attempt(1).node(1, "b").metrics, '{"event": "metrics"}\n')
    assert sorted(tail.poll(), key=str) == [(0, {"event": "one"}), (1, {"event": "metrics"})]
    append(run.attempt(2).node(0, "a").events, '{"event": "two"}\n')
    assert tail.poll() == [(0, {"event": "two"})]
    assert tail.poll() == []


def test_a_run_that_went_back_into_the_queue_has_not_ended(tmp_path):
    run = create_run_dir("x", parent=tmp_path)
    run.slurm.write_text(json.dumps({"job_id": 12}))
    note(run, "submitted", job_id=12)
    status = run_status(run)
    assert (status.live, status.outcome) == (None, "submitted") and "it is Slurm job 12" in status.why
    note(run, "launched")
    note(run, "cancelled", by="SIGTERM")
    note(run, "finished", exit_code=143)
    assert (run_status(run).live, run_status(run).exit_code) == (False, 143)
    note(run, "requeued")
    assert (run_status(run).live, run_status(run).outcome) == (None, "submitted")
    note(run, "launched")
    assert load_evidence(run).cancelled_by is None
    note(run, "finished", exit_code=0)
    assert (run_status(run).live, run_status(run).exit_code) == (False, 0)
