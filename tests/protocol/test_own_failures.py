"""Every failure of distdbg itself is an Unknown of the report, as the registry says, whatever the rules read."""

from __future__ import annotations

import pytest

from distdbg.protocol import events, facts
from distdbg.protocol.message import Event, Fact, RankMessage
from tests.made_run import MadeRun

FACTS = [kind for kind in (*Fact.kinds.values(), *RankMessage.kinds.values()) if kind.spec.lost]
EVENTS = [kind for kind in Event.kinds.values() if kind.spec.lost]
#: named in the design
MUST = {"not-hooked", "guard-failed", "subscriber-dropped", "watch-failed", "compile-watch-failed", "profile-failed",
        "question-failed", "not-kept", "agent-error", "log-lost", "hang-watch-error", "late-watch-error",
        "report-failed"}  # fmt: skip
VALUES = {"str": "words", "int": 7, "float": 7.5, "bool": True, "object": "words", "Sequence": [], "Mapping": {}}


def example(kind):
    """A record with a value in each field."""
    found = {n: VALUES[t.removesuffix(" | None").partition("[")[0]] for n, t in kind.types.items() if n != "more"}
    return found | ({"rank": 1} if "rank" in found else {})


def healthy(folder):
    run = MadeRun(folder, ranks=4, nodes=2)
    for rank in range(4):
        run.script_end(rank)
    run.rest()
    return run


def broken(folder):
    run = MadeRun(folder, ranks=4, nodes=2)
    run.raises(2, "ValueError", "boom")
    run.rest(-15, asked=9.5)
    return run


def judged(report):
    return report.outcome, report.exit_code, report.exit_code_of, report.findings, report.ranks


def put(run, kind, where):
    """Write the kind's example where it may stand."""
    record, name = example(kind), kind.spec.name
    if issubclass(kind, Fact):
        run.fact(1, op="fact", kind=name, t=5, **record)
    elif issubclass(kind, RankMessage):
        run.fact(1, op=name, t=5, **record)
    elif where == "launcher":
        run.launcher(name, t=5, **record)
    else:
        run.event(0, name, t=5, **record)


def test_what_the_design_names_is_marked():
    assert {kind.spec.name for kind in (*FACTS, *EVENTS)} >= MUST


@pytest.mark.parametrize("made", [healthy, broken])
@pytest.mark.parametrize(
    ("kind", "where"),
    [*((k, "rank") for k in FACTS), *((k, w) for k in EVENTS for w in ("node", "launcher"))],
    ids=lambda value: (getattr(value, "spec", None) and value.spec.name) or value,
)
def test_each_failure_of_our_own_is_unknown_and_changes_nothing_else(tmp_path, made, kind, where):
    before = made(tmp_path / "a").closes().report()
    run = made(tmp_path / "b")
    put(run, kind, where)
    report = run.closes().report()
    expected = (events if issubclass(kind, Event) else facts).failure_of(
        {
            "event": kind.spec.name,
            "op": kind.spec.name if issubclass(kind, RankMessage) else "fact",
            "kind": kind.spec.name,
        }
        | example(kind)
    )
    (unknown,) = set(report.unknown) - set(before.unknown)
    assert unknown.what.startswith(expected.what) and unknown.because == expected.because and unknown.because
    assert "{" not in unknown.what + unknown.because
    if where == "rank" or ("rank" in kind.types and where == "node"):
        assert unknown.what.endswith(" of rank 1")
    elif where == "node":
        assert unknown.what.endswith(" of node 0")
    assert judged(report) == judged(before)


@pytest.mark.parametrize(
    "kind", [kind for kind in (*FACTS, *EVENTS) if not kind.spec.only_if], ids=lambda kind: kind.spec.name
)
def test_a_record_without_its_fields_is_still_unknown(tmp_path, kind):
    """Old runs, and lines of broken workers."""
    run = healthy(tmp_path)
    if issubclass(kind, Event):
        run.event(0, kind.spec.name, t=5)
    else:
        run.fact(1, op="fact", kind=kind.spec.name, t=5)
    (unknown,) = run.closes().report().unknown
    assert unknown.what and unknown.because and "{" not in unknown.what + unknown.because


def test_a_healthy_run_has_no_unknown(tmp_path):
    assert healthy(tmp_path).closes().report().unknown == ()


def test_the_same_failure_of_many_ranks_is_one_unknown(tmp_path):
    run = healthy(tmp_path)
    for rank in (0, 1, 2, 3, 3):
        run.fact(rank, op="fact", kind="guard-failed", guard="missing-set-epoch", error="KeyError('x')")
    run.fact(2, op="fact", kind="guard-failed", guard="missing-set-epoch", error="KeyError('y')")
    found = [(u.what, u.because, u.decisive) for u in run.closes().report().unknown]
    assert found == [
        ("guard missing-set-epoch of each of ranks 0-3", "it raised KeyError('x')", False),
        ("guard missing-set-epoch of rank 2", "it raised KeyError('y')", False),
    ]


def test_the_same_loss_of_two_ranks_is_the_loss_of_each(tmp_path):
    run = healthy(tmp_path)
    for rank in (0, 1):
        run.event(0, "log-lost", t=5, rank=rank, stream="stdout", bytes=700, because="the disk is full")
    (unknown,) = run.closes().report().unknown
    assert unknown.what == "700 bytes of stdout of each of ranks 0-1"


def test_the_same_failure_of_many_nodes_is_one_unknown(tmp_path):
    run = healthy(tmp_path)
    for node in (0, 1):
        run.event(node, "agent-error", t=5, error="OSError('x')", traceback="…")
    (unknown,) = run.closes().report().unknown
    assert unknown.what == "an observation by the agent of each of nodes 0-1"
    assert unknown.because == "it raised OSError('x')"


def test_a_worker_that_fails_in_each_step_cannot_flood_the_report(tmp_path):
    run = healthy(tmp_path)
    for step in range(500):
        run.fact(0, op="fact", kind="question-failed", error=f"step {step}")
    unknowns = run.closes().report().unknown
    assert len(unknowns) == 65 and unknowns[-1].what == "what 436 more failures of distdbg cost"


def test_a_failed_watch_is_decisive_while_the_job_runs(tmp_path):
    """That nothing was found by a watch that had failed is no answer."""
    run = MadeRun(tmp_path, ranks=4, nodes=2)
    run.launcher("stalled", t=5, attempt=1)
    assert not any(u.decisive and "watch" in u.what for u in run.report().unknown)
    run.fact(0, op="fact", kind="watch-failed", watch="numerics", error="TypeError('x')")
    assert [u.what for u in run.report().unknown if u.decisive and "watch" in u.what] == ["watch numerics of rank 0"]


def test_an_error_text_is_bounded_and_no_template(tmp_path):
    run = healthy(tmp_path)
    run.fact(0, op="fact", kind="not-hooked", module="{error}", error="{module}" + "x" * 10_000)
    (unknown,) = run.closes().report().unknown
    assert unknown.what == "what distdbg observes through {error} of rank 0" and len(unknown.because) < 4010


def test_before_any_agent_wrote_the_launchers_failures_are_known(tmp_path):
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    for files in run.node_files:
        files.events.unlink()
        files.folder.rmdir()
    for rank in range(2):
        run.files(rank).folder.rmdir()
    run.launcher("report-failed", t=5, error="KeyError('x')", traceback="")
    attempts = run.dir.attempt(1).folder
    for folder in ("nodes", "ranks"):
        (attempts / folder).rmdir()
    attempts.rmdir()
    assert "the report at the end of the launch" in [u.what for u in run.report().unknown]
