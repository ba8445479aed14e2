"""A launcher that was killed: its process is looked for on this machine, and its agents record that it is gone."""

import json
import subprocess
import sys

import pytest

from distdbg.collect.runs.launcher_process import describe_launcher
from tests.made_run import MadeRun


@pytest.fixture
def dead():
    """The description of a process that has ended."""
    code = "import json; from distdbg.collect.runs.launcher_process import *; print(json.dumps(describe_launcher()))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def launched_by(run, launcher):
    run.dir.job.write_text(json.dumps(run.job() | {"launcher": launcher}))


def stop_ranks(run):
    for node in range(run.nodes):
        run.event(node, "stopping", t=8.0, reason="the launcher is gone")
        run.event(node, "torchrun-exited", t=9.5, exit_code=1, reported={})
        run.event(node, "agent-finished", t=9.6, exit_code=1)
    run.rest(-15, t=9.0, asked=8.0)


def test_killed_launcher_is_no_cancel(tmp_path, dead):
    run = MadeRun(tmp_path)
    launched_by(run, dead)
    stop_ranks(run)
    report = run.report()
    (finding,) = report.findings
    assert (finding.id, finding.confidence, finding.ranks) == ("launcher-lost", "certain", ())
    assert f"pid {dead['pid']} on {dead['host']}" in finding.summary
    assert (finding.evidence[0].path, finding.first_seen) == ("attempts/1/nodes/0000-node0/events.jsonl", run.t0 + 8)
    assert (report.outcome, report.exit_code, report.run["cancelled_by"]) == ("failed", None, None)
    assert str(dead["pid"]) in report.exit_code_of


def test_no_rank_runs_if_the_launcher_and_agents_are_gone(tmp_path, dead):
    run = MadeRun(tmp_path)
    launched_by(run, dead)
    report = run.report()
    (finding,) = report.findings
    assert (finding.id, finding.severity, finding.confidence) == ("launcher-lost", "warning", "possible")
    assert "could not be written" in finding.cause and (report.outcome, report.exit_code) == ("unknown", None)
    assert {rank.state for rank in report.ranks} == {"unknown"}
    assert [u.because for u in report.unknown if u.what.startswith("exit code")] == ["no agent recorded its end"]


@pytest.mark.parametrize("changed", [{"host": "another"}, {"boot_id": "another"}, {"pid_namespace": "pid:[1]"}, None])
def test_launcher_that_cannot_be_looked_for_is_unknown(tmp_path, dead, changed):
    run = MadeRun(tmp_path)
    launched_by(run, dead | changed if changed else None)
    report = run.report()
    assert report.findings == () and report.outcome == "unknown"
    assert {rank.state for rank in report.ranks} == {"unknown"}
    stop_ranks(run)
    assert [(f.id, f.confidence) for f in run.report().findings] == [("launcher-lost", "likely")]


def test_living_launcher_is_not_lost(tmp_path):
    run = MadeRun(tmp_path)
    launched_by(run, describe_launcher())
    assert run.report().findings == ()
    assert {rank.state for rank in run.report().ranks} == {"running"}


def test_failure_before_the_launchers_end_comes_first(tmp_path, dead):
    run = MadeRun(tmp_path)
    launched_by(run, dead)
    run.exits(2, -9, t=7.0)
    stop_ranks(run)
    report = run.report()
    assert [(f.id, f.ranks) for f in report.findings] == [("rank-killed", (2,)), ("launcher-lost", ())]
    assert (report.exit_code, report.exit_code_of) == (137, "rank 2")


def test_launcher_lost_after_all_ranks_ended_costs_nothing(tmp_path, dead):
    run = MadeRun(tmp_path)
    launched_by(run, dead)
    run.rest(0)
    report = run.report()
    assert (report.findings, report.outcome, report.exit_code) == ((), "succeeded", 0)
