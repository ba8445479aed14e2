"""Programs with one planted fault each, and healthy ones that look like them, traced by torch.profiler."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.cli.commands.profile import report_on as show
from distdbg.collect.files.trace_files import read_trace_file
from distdbg.report.profile_document import profile_document

PROGRAMS = Path(__file__).resolve().parent.parent / "programs" / "profile"
BAD = sorted(p.stem for p in PROGRAMS.glob("bad_*.py"))
GOOD = sorted(p.stem for p in PROGRAMS.glob("good_*.py"))
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("profile-files")]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """All of them, traced in one process: a folder of NAME.json.gz."""
    folder = tmp_path_factory.mktemp("traces")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "5"}
    command = [sys.executable, str(PROGRAMS / "trace_them.py"), str(folder), *BAD, *GOOD]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def read(traces, name):
    return read_trace_file(traces / f"{name}.json.gz", f"{name}.json.gz", (PROGRAMS,))


@pytest.mark.parametrize("name", BAD)
def test_a_planted_fault_is_named_with_its_line(traces, name):
    source = (PROGRAMS / f"{name}.py").read_text()
    wanted = ast.get_docstring(ast.parse(source)).partition(":")[0]
    (line,) = (n for n, text in enumerate(source.splitlines(), 1) if text.endswith("# the fault"))
    found = profile_document([read(traces, name)]).report.findings
    assert [finding.id for finding in found] == [wanted], [finding.summary for finding in found]
    assert f"{name}.py:{line} in " in found[0].summary
    assert "can be gained" in found[0].cause and found[0].evidence[0].path == f"{name}.json.gz"


@pytest.mark.parametrize("name", [name for name in GOOD if name != "good_ddp"])
def test_a_healthy_program_gets_no_finding(traces, name):
    profile = read(traces, name)
    assert profile.steps == 6
    assert [finding.summary for finding in profile_document([profile]).report.findings] == []


def test_attention_with_dropout_is_on_the_math_path_and_nothing_else_would_do(traces):
    (attention,) = (d for d in read(traces, "good_attention_with_dropout").costly if d.kind == "attention")
    assert attention.fused == ""


def test_parts_sum_to_the_step_and_the_phases_are_where_they_were(traces):
    profile = read(traces, "good_loss_read_once")
    assert sum(profile.parts.values()) == pytest.approx(profile.step_us, rel=0.02)
    assert profile.by == "ProfilerStep" and profile.unknown == ()
    assert all(profile.parts[part] > 0 for part in ("forward", "backward", "optimizer"))
    assert profile.parts["data wait"] == profile.parts["communication"] == 0.0
    assert any(row.name == "aten::addmm" and row.calls == 2 for row in profile.operators)
    loader = read(traces, "bad_sleepy_loader")
    assert loader.share(loader.parts["data wait"]) > 0.5 and "Single" in loader.loader


def test_ranks_of_ddp_are_shown_side_by_side(traces, capsys):
    files = [traces / f"good_ddp.rank{rank}.json.gz" for rank in (1, 0)]
    with pytest.raises(SystemExit) as ended:
        show(files, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and result["findings"] == [] and result["schema"] == "distdbg.report/1"
    assert [(one["rank"], one["steps"]) for one in result["profile"]] == [(0, 6), (1, 6)]
    for one in result["profile"]:
        assert sum(one["parts_us"].values()) == pytest.approx(one["step_us"], rel=0.02)
        assert one["parts_us"]["communication"] + one["communication_hidden_us"] > 0
    with pytest.raises(SystemExit):
        show([*files, PROGRAMS / "good_ddp.py"], as_json=False)
    text = capsys.readouterr().out
    assert "rank 0 " in text and "rank 1 " in text and "operators of rank" in text
    assert "good_ddp.py, because it is no chrome trace: it is not JSON" in text


def test_a_launched_job_names_its_ranks_and_lines(distdbg, tmp_path):
    """What `launch --profile` leaves is judged at the job's end, and shown again by `distdbg profile`."""
    script = PROGRAMS / "launched.py"
    lines = dict(enumerate(script.read_text().splitlines(), 1))
    (slow,) = (n for n, text in lines.items() if text.endswith("# slow on rank 1"))
    (math,) = (n for n, text in lines.items() if text.endswith("# on the math path"))
    done = distdbg("launch", "--nproc-per-node", "2", "--profile", "4:9", str(script), env={"OMP_NUM_THREADS": "1"})
    assert done.code == 0, done.err
    shown = distdbg("profile", "--json")
    findings = {finding["id"]: finding for finding in json.loads(shown.out)["findings"]}
    assert shown.code == 0 and set(findings) == {"data-starved", "attention-not-fused"}, shown.out[:3000]
    assert findings["data-starved"]["ranks"] == [1]
    assert f"sleep() at launched.py:{slow} in " in findings["data-starved"]["summary"]
    assert f"launched.py:{math} in forward" in findings["attention-not-fused"]["summary"]
    report = json.loads((tmp_path / "distdbg-runs/latest/report/report.json").read_text())
    assert findings.keys() <= {finding["id"] for finding in report["findings"]}
    assert report["outcome"] == "succeeded"
    for one in json.loads(shown.out)["profile"]:
        assert one["steps_by"] == "distdbg's marks" and (one["first"], one["last"]) == ("4", "9")
        assert sum(one["parts_us"].values()) == pytest.approx(one["step_us"], rel=0.02)
