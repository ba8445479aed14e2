"""Order, explanation, outcome and exit code."""

from dataclasses import replace

import pytest

from distdbg.diagnosis import rules
from distdbg.diagnosis.rules import Rule, all_rules
from distdbg.diagnosis.verdict import build_report, explain, order, run_facts
from distdbg.hidden_values import HiddenValues, SecretValue
from distdbg.launch.plan.job_record import hidden_values
from distdbg.masking import MASK
from distdbg.model import CauseClass, Finding
from tests.made_run import GLOO_LOST, MadeRun


def finding(name, cause_class, t, ranks=(0,), severity="error"):
    return Finding(name, severity, "certain", name, ranks=ranks, cause_class=cause_class, first_seen=t)


def test_order_is_by_class_of_cause_then_first_symptom():
    shuffled = [
        finding("hint", CauseClass.OBSERVATION, 0.0, severity="warning"),
        finding("lost-2", CauseClass.COMMUNICATION, 1.0),
        finding("lost-1", CauseClass.COMMUNICATION, 0.5),
        finding("killed", CauseClass.KILLED_OR_OOM, 0.1),
        finding("raised", CauseClass.UNCAUGHT_ERROR, 9.0),
        finding("handled", CauseClass.EXCEPTION_IN_FLIGHT, 10.0),
        finding("early", CauseClass.EARLY_EXIT, 0.0),
    ]
    assert [f.id for f in order(shuffled)] == ["handled", "raised", "killed", "early", "lost-1", "lost-2", "hint"]


def test_only_consequences_are_explained():
    found = explain(
        order(
            [
                finding("killed", CauseClass.KILLED_OR_OOM, 0.1),
                finding("raised", CauseClass.UNCAUGHT_ERROR, 9.0),
                finding("lost", CauseClass.COMMUNICATION, 0.5),
                finding("hint", CauseClass.OBSERVATION, 0.0, severity="info"),
            ]
        )
    )
    assert {f.id: f.explained_by for f in found} == {"raised": None, "killed": None, "lost": "raised", "hint": None}


def test_a_rank_hangs_because_of_the_exception_that_it_handles():
    raised = finding("raised", CauseClass.EXCEPTION_IN_FLIGHT, 2.0, ranks=(1,))
    hangs = [finding("hangs", CauseClass.STUCK, 1.0, ranks=(rank,)) for rank in (1, 2)]
    assert [f.explained_by for f in explain(order([raised, *hangs]))] == [None, "raised", None]


def test_node_that_is_lost_later_does_not_explain_a_hang():
    lost = finding("node-lost", CauseClass.KILLED_OR_OOM, 9.0, ranks=(0, 1))
    hangs = [finding(name, CauseClass.STUCK, t, ranks=(1,)) for name, t in (("before", 2.0), ("after", 9.5))]
    explained = {f.id: f.explained_by for f in explain(order([lost, *hangs]))}
    assert explained == {"node-lost": None, "before": None, "after": "node-lost"}


@pytest.mark.parametrize("before", [212, 480])
def test_secret_is_masked_before_a_long_line_is_cut(tmp_path, before):
    """Only a digest of it is known, which no part of it has."""
    secret = SecretValue("MY_TOKEN", "q7Zr0aPxyz11WvUt")
    run = MadeRun(tmp_path)
    run.raises(0, "RuntimeError", "x" * before + f" {secret.value} " + "y" * 2000, t=8.0)
    evidence = replace(run.closes().evidence(), hidden=HiddenValues({"hidden_values": hidden_values([secret])}))
    (raised,) = [f for f in build_report(evidence).findings if f.id == "rank-exception"]
    assert secret.value[:4] not in repr(raised) and MASK[:3] in repr(raised), raised
    assert max(map(len, raised.evidence[0].quote.split("\n"))) < 1010 and len(raised.summary) < 510


@pytest.mark.parametrize(("by", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("cancel by me", 143)])
def test_cancelled(tmp_path, by, code):
    run = MadeRun(tmp_path)
    run.launcher("cancelled", t=8.0, by=by)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.5, asked=8.0)
    run.rest(-15, t=9.0, asked=8.0)
    report = run.closes().report()
    assert (report.outcome, report.exit_code, report.findings) == ("cancelled", code, ())
    assert all(r.state.startswith("stopped") for r in report.ranks)


def test_ended_because_its_time_was_up(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("time-up", t=7.9)
    run.launcher("cancelled", t=8.0, by="SIGTERM")
    run.rest(-15, t=9.0, asked=8.0)
    report = run.closes().report()
    assert (report.outcome, report.exit_code) == ("cancelled", 143)
    assert report.exit_code_of == "SIGTERM (its time was up, and it had not ended by itself)"


def test_where_torchrun_was_faster_than_us_what_the_script_gave_to_sys_exit_is_its_code(tmp_path):
    run = MadeRun(tmp_path)
    run.script_end(3, "SystemExit", code=7)
    run.exits(3, None, because="torchrun had collected the process before its exit code was read")
    run.rest(0)
    run.event(0, "stopping", t=11.0, reason="another node has failed")
    report = run.closes({0: -9, 1: 7}).report()
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 7, "rank 3")
    assert [(f.id, f.ranks) for f in report.findings] == [("rank-exception", (3,))]


def test_the_code_of_a_torchrun_that_we_have_ended_comes_last(tmp_path):
    run = MadeRun(tmp_path)
    run.exits(3, None, because="torchrun had collected the process before its exit code was read")
    run.rest(0)
    run.event(0, "stopping", t=11.0, reason="another node has failed")
    report = run.closes({0: -9, 1: 7}).report()
    assert (report.exit_code, report.exit_code_of) == (7, "torchrun on node 1")


def test_a_failure_before_the_cancel_stays_a_failure(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=7.0)
    run.launcher("cancelled", t=8.0, by="SIGINT")
    run.rest(-15, t=9.0, asked=7.5)
    report = run.closes().report()
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 1, "rank 2")


@pytest.mark.parametrize(("silent_s", "outcome", "code"), [(16.0, "failed", 76), (4.0, "cancelled", 143)])
def test_slurm_ends_a_job_whose_node_was_gone_before(tmp_path, silent_s, outcome, code):
    """A node that fell silent after the job was asked to end is no cause."""
    run = MadeRun(tmp_path)
    run.launcher("cancelled", t=8.0, by="SIGTERM")
    run.launcher("node-silent", t=14.0, node_rank=1, silent_s=silent_s, because="its host does not answer")
    run.launcher("agent-exited", t=14.0, node_rank=1, exit_code=76)
    for rank in (0, 1):
        run.raises(rank, "RuntimeError", GLOO_LOST, t=8.5, asked=8.0)
    report = run.report()
    assert (report.outcome, report.exit_code) == (outcome, code)
    assert [(f.id, f.nodes) for f in report.findings][:1] == ([("node-lost", ("node1",))] if code == 76 else [])


def test_agent_that_lost_its_launcher_is_no_cancel(tmp_path):
    run = MadeRun(tmp_path)
    for node in range(2):
        run.event(node, "stopping", t=8.0, reason="the launcher is gone")
    run.rest(-15, t=9.0, asked=8.0)
    report = run.closes().report()  # the launcher lived on
    assert (report.outcome, report.run["cancelled_by"]) == ("failed", None)
    assert [(f.id, f.nodes) for f in report.findings] == [("node-lost", ("node0",)), ("node-lost", ("node1",))]


def test_stopping_because_another_node_failed_is_no_cancel(tmp_path):
    run = MadeRun(tmp_path)
    run.exits(3, -9, t=7.0)
    run.event(0, "stopping", t=8.0, reason="another node has failed")
    run.rest(-15, t=9.0, asked=8.0)
    report = run.closes().report()
    assert (report.outcome, report.exit_code) == ("failed", 137)


def test_a_rule_that_fails_costs_the_others_nothing(tmp_path, monkeypatch):
    def breaks(_run):
        yield finding("found-before", CauseClass.OBSERVATION, None, severity="info")
        raise KeyError("planted")

    broken = Rule("death", "breaks", (all_rules()[0].docs[0],), breaks)
    known = rules.rules_of
    monkeypatch.setattr(rules, "rules_of", lambda name: (broken, *known(name)) if name == "death" else known(name))
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=7.0)
    run.rest(-15, t=9.0, asked=7.5)
    report = run.closes().report()
    assert (report.exit_code, [f.id for f in report.findings]) == (1, ["rank-exception", "found-before"])
    assert [(u.what, u.because) for u in report.unknown] == [
        (broken.docs[0].id, "rule breaks failed: KeyError('planted'); please report it")
    ]


def test_success_needs_every_rank(tmp_path):
    run = MadeRun(tmp_path)
    for rank in range(3):
        run.exits(rank, 0)
    run.exits(3, None, because="torchrun had collected the process before its exit code was read")
    report = run.closes(torchrun=0).report()
    assert report.outcome == "unknown"
    assert [(u.what, u.because[:8]) for u in report.unknown] == [("exit code of rank 3", "torchrun")]


def test_no_rank_has_a_known_code_but_torchrun_has(tmp_path):
    run = MadeRun(tmp_path)
    for rank in range(4):
        run.exits(rank, None, because="it could not be watched")
    report = run.closes(torchrun=1).report()
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 1, "torchrun on node 0")


# -- hangs ------------------------------------------------------------------------------------------------------------


def test_a_job_that_hangs_and_lives_has_no_exit_code_yet(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=1)
    report = run.report()
    assert (report.outcome, report.exit_code) == ("hung", None)


def test_a_hang_that_was_ended_is_75(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=1)
    run.launcher("ended-hung", t=9.0, attempt=1, action="kill")
    run.rest(-15, t=9.5, asked=9.1)
    report = run.closes().report()
    assert (report.outcome, report.exit_code) == ("hung", 75)
    assert "distdbg" in report.exit_code_of


def test_what_moved_again_and_succeeded_has_succeeded(tmp_path):
    for events in (["stalled", "moving-again"], ["stalled"]):
        run = MadeRun(tmp_path / "-".join(events))
        for event in events:
            run.launcher(event, t=8.0, attempt=1)
        run.rest(0, t=9.5)
        assert run.closes().report().outcome == "succeeded", events


def test_a_slow_step_that_ends_in_an_error_of_its_own_has_failed(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=1)
    run.raises(2, "ValueError", "boom", t=9.0)
    run.rest(-15, t=9.5, asked=9.1)
    report = run.closes().report()
    assert (report.outcome, report.exit_code) == ("failed", 1)


def test_a_hung_job_whose_timeout_ended_it_is_hung_and_has_its_own_code(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=1)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.0)
    run.rest(-15, t=9.5, asked=9.1)
    report = run.closes().report()
    assert (report.outcome, report.exit_code) == ("hung", 1)


def test_the_hang_of_an_earlier_attempt_does_not_stick(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=0)
    run.rest(0, t=9.5)
    assert run.closes().report().outcome == "succeeded"


def test_hang_without_a_dump_is_unknown_for_the_reasons_of_the_nodes(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("stalled", t=8.0, attempt=1)
    reasons = ["node 0: there is no room for a dump"]
    run.launcher("dump", t=9.0, folder="x", reason="hang", seconds=0.6, collected=0, ranks=4, because=reasons)
    (unknown,) = [u for u in run.report().unknown if u.what == "why the job stands still"]
    expected = "nothing of its ranks was collected while it did (node 0: there is no room for a dump)"
    assert unknown.because == expected


def test_start_of_a_run_whose_first_records_are_lost_is_unknown(tmp_path):
    """The run directory was deleted in the middle, and the launcher wrote its last events."""
    run = MadeRun(tmp_path)
    run.rest(0, t=500.0)
    run.closes().dir.job.unlink()
    assert run.report().run["started"] == run.t0
    events = run.dir.events.read_text().splitlines(keepends=True)
    run.dir.events.write_text("".join(line for line in events if '"launched"' not in line))
    assert run.report().run["started"] is None


def test_a_job_that_runs_has_lasted_until_its_nodes_were_last_heard_of(tmp_path):
    run = MadeRun(tmp_path)
    run.event(1, "progress", t=480.0, step=400)
    facts = run.report().run
    assert facts["ended"] - facts["started"] == 480.0
    run.rest(0, t=500.0)
    run.closes()
    run.event(1, "progress", t=9999.0, step=400)  # by a clock of its own
    facts = run.report().run
    assert facts["ended"] - facts["started"] < 600


def test_impossible_time_of_an_end_makes_no_duration(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=7.0)
    evidence = run.closes().evidence()
    late = replace(evidence.ranks[2], ended=1e40)
    facts = run_facts(replace(evidence, ranks=(*evidence.ranks[:2], late)))
    assert facts["ended"] is None or facts["ended"] < 2**33


def test_message_about_the_network_leaves_the_ranks_own_exit_code(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(1, "RuntimeError", "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: "
               "Connection refused, remote=[127.0.0.1]:54156", t=7.0)  # fmt: skip
    run.rest(-15, t=9.0, asked=7.5)
    report = run.closes().report()
    assert (report.findings[0].id, report.exit_code, report.exit_code_of) == ("network-cut", 1, "rank 1")
