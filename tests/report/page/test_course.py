"""The run over its steps on its page: what stands where, for few ranks and for many; and how large it is."""

import json
import re

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.model import Finding, Report
from distdbg.report.page.course import course
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.run_document import run_document
from tests.made_run import T0, MadeRun

MIB = 1 << 20


def figures(rank, step):
    return {"step_ms": 12.0 + 8.0 * (rank == 5 and step >= 2000), "rss": 900 * MIB + rank * MIB}


def made(tmp_path, ranks=8, nodes=2, looks=40, figures_at=figures, **how):
    run = MadeRun(tmp_path, ranks, nodes)
    run.looks(looks, figures_at, **how)
    return run


def drawn(run):
    evidence = run.evidence()
    report = build_report(evidence)
    return course(report, evidence), PageRenderer().render(run_document(report, evidence, whole=True))


def test_each_figure_has_its_strip_and_findings_their_step(tmp_path):
    run = made(tmp_path)
    with run.files(0).memory_lines.open("w") as file:
        for step in range(0, 4000, 50):
            file.write(json.dumps({"step": step, "phases": {"optimizer": {"ANON": 7 * MIB, "MA": step * MIB}}}) + "\n")
    run.fact(0, kind="gradient-layers", optimizer=0, table=0, layers=["a"], kinds=["Linear"], of="AdamW", copies=8)
    with run.files(0).gradients.open("w") as file:
        for step in range(1, 3900, 10):
            line = {"step": step, "optimizer": 0, "table": 0, "total": 2.5 if step < 3800 else None}
            file.write(json.dumps({**line, "gradient": [1.0], "weight": [1.0]}) + "\n")
    run.fact(3, kind="guard", guard="non-finite", step=3801, t=380)
    run.raises(3, "ValueError", "boom", t=385, step=3850)
    run.rest(-15, t=386, asked=385.5)
    found, page = drawn(run.closes())
    charts = {curve_chart.name: curve_chart for curve_chart in found.charts}
    assert list(charts) == ["Step time", "GPU memory", "Host memory", "Gradient norm"]
    assert [row.label for row in charts["GPU memory"].rows] == ["rank 0"]
    assert charts["Host memory"].rows[0].words == "7.00 MiB"
    assert charts["Gradient norm"].rows[0].words == "2.5, not finite at step 3,801"
    assert charts["Gradient norm"].rows[1].label == "rank 3" and charts["Gradient norm"].rows[1].marks
    places = {row.id: (round(row.place), row.words) for row in found.findings}
    assert places["rank-exception"] == (975, "rank 3, step 3,850") and places["non-finite"][1] == "rank 3, step 3,801"
    assert found.rules == (next(row.place for row in found.findings if row.id == "rank-exception"),)
    assert "Over the run" in page and "<h2>Step times</h2>" not in page


def test_a_finding_without_a_step_is_placed_by_its_time_or_not_at_all():
    run = RunEvidence({}, 1, (RankRecord(0, 0, 0, "n", step=100, ended=50.0), RankRecord(1, 1, 0, "n", step=90)),
                      (NodeRecord(0, "n"),))  # fmt: skip
    findings = [Finding("data-starved", "warning", "likely", "slow", ranks=(0,), first_seen=60.0),
                Finding("rank-killed", "error", "certain", "dead", ranks=(1,), first_seen=60.0)]  # fmt: skip
    rows = course(Report("failed", tuple(findings)), run).findings
    assert [(row.place, row.words) for row in rows] == [
        (1000.0, "rank 0, about step 100"), (None, "rank 1, no step is known"),
    ]  # fmt: skip


def test_a_loss_that_was_watched(tmp_path):
    run = made(tmp_path, looks=0)
    series = [[step, 3.0 / step if step < 20 else "nan"] for step in range(1, 24)]
    run.fact(0, kind="guard", guard="overfit", steps=23, losses={"/x/train.py:9": series})
    run.rest(0)
    found, _ = drawn(run.closes())
    assert [curve_chart.name for curve_chart in found.charts] == ["Loss"]
    assert found.charts[0].rows[0].words == "3 to 0.158, not finite at step 20"


def test_a_run_without_steps_has_none(tmp_path):
    run = made(tmp_path, figures_at=lambda rank, step: {"step": None})
    run.rest(0, step=0)
    found, page = drawn(run.closes())
    assert found is None and "Over the run" not in page


def test_a_long_run_is_drawn_from_its_beginning_and_stays_small(tmp_path):
    """100,000 steps of 64 ranks: what is read of its figures is bounded, and comes from all over it."""
    run = made(tmp_path, 64, 1, looks=2, every=1.0)
    line = json.loads(run.node_files[0].metrics.read_text().splitlines()[0])
    with run.node_files[0].metrics.open("w") as file:
        for n in range(500):  # more than is read of one file
            for row in line["ranks"]:
                row |= {"step": 200 * n, "step_ms": 12.0 + row["rank"] % 7 + n % 11, "rss": (900 + n) * MIB}
            file.write(json.dumps({**line, "t": T0 + n}) + "\n")
    run.rest(0, step=100_000)
    assert run.node_files[0].metrics.stat().st_size > 1 << 20
    evidence = run.closes().evidence()
    looks = evidence.nodes[0].courses[63]
    assert looks[0].step < 2000 and looks[-1].step > 98_000 and len(looks) > 200
    found, page = drawn(run)
    assert 60_000 < len(page) < 200_000 and len(found.charts[0].rows) == 13
    assert re.findall(r'(?:src|href)="?(?!#)\S', page) == []


def test_many_ranks_are_a_band_and_those_that_stand_out(tmp_path):
    run = made(tmp_path, 256, 32, looks=12, steps=400)
    run.rest(0, step=4400)
    found, page = drawn(run.closes())
    assert [row.label for row in found.charts[0].rows] == ["256 ranks", "rank 5"]
    assert len(page) < 200_000
