"""Numbers and times that no job has: texts of every kind are read, and rendered in every form."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.errors import DistdbgError
from distdbg.evidence.logs import job
from distdbg.evidence.logs.prefixes import epoch
from distdbg.model import is_plausible_time
from distdbg.report.json_form import JsonRenderer
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.run_document import run_document
from distdbg.report.text.renderer import TextRenderer
from tests.logs.test_corpus import cases
from tests.made_run import MadeRun

TIME = re.compile(r"\d{4}([-/])\d\d[-/]\d\d([ T_])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
CHANGES: dict[str, Callable[[str], str]] = {
    "last time": lambda text: TIME.sub(lambda m: f"9999{m[1]}12{m[1]}31{m[2]}23:59:59.999999", text),
    "first time": lambda text: TIME.sub(lambda m: f"0001{m[1]}01{m[1]}01{m[2]}00:00:00", text),
    "400 digits": lambda text: re.sub(r"\d+", "9" * 400, text),
    "5000 digits": lambda text: re.sub(r"\d+", "7" * 5000, text),
    "20 digits": lambda text: re.sub(r"\d+", "9" * 20, text),
    "negative": lambda text: re.sub(r"(?<![\w.])\d+(?!\w)", "-1", text),
    "zero": lambda text: re.sub(r"\d+", "0", text),
}
ERROR_FILE = (
    '{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n'
    '  File \\"t.py\\", line 3, in f\\nValueError: x", "timestamp": "1700000000"}}}'
)
#: One case in seven of each file: the forms repeat.
SAMPLES = [*(case.files for case in cases()[::7]), {"error_0.json": ERROR_FILE}]


def render_all(paths) -> None:
    evidence = load(paths)
    document = run_document(build_report(evidence), evidence, whole=True)
    for renderer in (JsonRenderer(), TextRenderer(), PageRenderer()):
        assert renderer.render(document)


@pytest.mark.parametrize("change", CHANGES)
def test_logs_with_extreme_numbers_are_read(change, tmp_path):
    for number, files in enumerate(SAMPLES):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in files.items():
            (folder / name.rpartition("/")[2]).write_text(CHANGES[change](text))
        try:
            render_all([folder])
        except DistdbgError:
            continue


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.999999Z", "0001-01-01 00:00:00", "9" * 400, "99999999999999999"])
def test_a_time_that_no_calendar_has_is_none(text):
    t = epoch(text)
    assert t is None or is_plausible_time(t)


@pytest.mark.parametrize("number", ["-1", "1e308", "9" * 400, "NaN", "Infinity", "-9223372036854775808"])
def test_a_record_with_extreme_numbers_is_read(number, tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "x")
    run.rest(-15, t=11.0, asked=9.5)
    run.closes(kernel=[["oom-kill", 1.5]])
    for path in run.dir.path.rglob("*.json*"):
        changed = re.sub(r"(?<=[:\[,] )-?\d[\d.]*(?=[,}\]\n])", number, path.read_text())
        assert changed != path.read_text() or path.name == "report.json"
        path.write_text(changed)
    render_all([run.dir.path])


@pytest.mark.parametrize(
    "text", ['{"rank": "\u00b2", "message": "ValueError: x"}', '{"message": {"timestamp": "\u00b2"}}']
)
def test_digits_that_are_no_numbers(tmp_path, text):
    """A superscript two is a digit of Unicode, and int() and float() refuse it."""
    (tmp_path / "job.log").write_text(f"{text}\n")
    load([tmp_path / "job.log"])


def test_many_exits_look_at_each_line_once(tmp_path, monkeypatch):
    """5 MB of srun's messages took two minutes."""
    looked = []
    monkeypatch.setattr(job, "is_progress", lambda text: looked.append(text) or False)
    lines = [f"srun: error: node{n}: task {n}: Killed" for n in range(3000)]
    (tmp_path / "slurm.out").write_text("\n".join(lines) + "\n")
    load([tmp_path / "slurm.out"])
    assert 0 < len(looked) <= 3000
