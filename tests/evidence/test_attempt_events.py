"""Which of the launcher's events are those of an attempt: restarts, starts of the launcher, cut logs."""

from tests.made_run import MadeRun


def begin(run, attempt, t):
    run.launcher("attempt-begun", t=t, attempt=attempt)


def requeued(tmp_path):
    """Attempt 1 lost node 1; the launcher was started again, and attempt 2 was restarted by torchrun."""
    first = MadeRun(tmp_path)
    begin(first, 1, 0.1)
    first.launcher("node-silent", t=20.0, node_rank=1, silent_s=14.0, because="no answer", host="node1")
    first.launcher("agent-exited", t=20.0, node_rank=1, exit_code=76, host="node1", because="no answer")
    first.exits(0, -15, t=23.0, asked=22.0)
    first.exits(1, -15, t=23.0, asked=22.0)
    first.launcher("agents-gone", t=24.0, exit_codes=[1, 76], cancelled_by=None)
    first.launcher("finished", t=24.1, exit_code=76)
    first.launcher("requeued", t=24.2, because="node1 is lost", without=["node1"])
    second = MadeRun(tmp_path, attempt=2)
    begin(second, 2, 30.0)
    second.exits(3, -9, t=40.0)
    second.rest(-15, t=41.0, asked=40.5)
    third = MadeRun(tmp_path, attempt=3)
    lines = third.dir.events.read_text().splitlines()
    third.dir.events.write_text("\n".join(lines[:-1]) + "\n")  # torchrun made the restart, and not the launcher
    begin(third, 3, 42.0)
    return first, second, third


def test_each_attempt_has_its_own_events(tmp_path):
    first, second, third = requeued(tmp_path)
    third.rest(0)
    third.closes()
    report = first.report(attempt=1)
    assert [(f.id, f.nodes) for f in report.findings][:1] == [("node-lost", ("node1",))]
    assert (report.outcome, report.exit_code, report.run["cancelled_by"]) == ("failed", 76, None)
    report = second.report(attempt=2)
    assert [(f.id, f.ranks) for f in report.findings][:1] == [("rank-killed", (3,))]
    assert report.exit_code == 137
    names = [[e["event"] for _, e in third.evidence(attempt=n).events] for n in (1, 2, 3)]
    assert names[0][0] == "launched" and names[0][-1] == "requeued"
    assert names[1] == ["launched", "attempt-begun"]
    assert names[2][0] == "attempt-begun" and names[2][-1] == "agents-gone"


def test_restarted_names_the_root_cause_of_each_attempt(tmp_path):
    *_, third = requeued(tmp_path)
    third.rest(0)
    report = third.closes().report()
    assert [(f.id, f.nodes, f.ranks) for f in report.findings] == [
        ("restarted", ("node1",), (2, 3)),
        ("restarted", ("node1",), (3,)),
    ]
    assert (report.outcome, report.exit_code) == ("succeeded", 0)


def test_launcher_killed_before_a_requeue(tmp_path):
    first = MadeRun(tmp_path)
    begin(first, 1, 0.1)
    first.event(0, "stopping", t=8.0, reason="the launcher is gone")
    first.rest(-15, t=9.0, asked=8.0)
    second = MadeRun(tmp_path, attempt=2)
    begin(second, 2, 30.0)
    assert [f.id for f in first.report(attempt=1).findings] == ["launcher-lost"]
    assert second.report().run["attempt"] == 2


def test_attempt_whose_beginning_was_not_written_has_no_events(tmp_path):
    first = MadeRun(tmp_path)
    begin(first, 1, 0.1)
    first.launcher("agent-exited", t=5.0, node_rank=1, exit_code=-9)
    second = MadeRun(tmp_path, attempt=2)
    lines = second.dir.events.read_text().splitlines()
    second.dir.events.write_text("\n".join(lines[:-1]) + "\n")
    assert second.evidence().events == ()


def test_start_without_ranks_is_not_that_of_the_last_attempt(tmp_path):
    run = MadeRun(tmp_path)
    begin(run, 1, 0.1)
    run.rest(0)
    run.closes()
    run.launcher("launched", t=50.0, nodes=2)
    run.launcher("not-started", t=51.0, because="node1 did not come up")
    report = run.report()
    assert (report.outcome, report.exit_code) == ("succeeded", 0)
    assert [u.because for u in report.unknown] == ["node1 did not come up"]


def test_older_log_gives_no_events_for_an_older_attempt(tmp_path):
    first = MadeRun(tmp_path)
    first.exits(3, -9, t=5.0)
    first.rest(-15, t=6.0, asked=5.5)
    second = MadeRun(tmp_path, attempt=2)
    second.rest(0)
    second.closes()
    assert first.evidence(attempt=1).events == ()
    assert any("attempt 1" in u.what for u in first.report(attempt=1).unknown)
    assert [(f.id, f.ranks) for f in first.report(attempt=1).findings] == [("rank-killed", (3,))]
