"""`distdbg report` and `distdbg findings`: output, exit codes, what people get wrong."""

import errno
import json
import os
import re
import zipfile

import jsonschema
import pytest
from click.testing import CliRunner

from distdbg.assets import asset_dir
from distdbg.cli.commands.diff import command as diff
from distdbg.cli.commands.findings import command as findings
from distdbg.cli.commands.report import command as report
from distdbg.diagnosis.rules import all_rules
from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, UsageError
from tests.made_run import MadeRun


@pytest.fixture
def failed(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=9.0)
    run.rest(-15, t=11.0, asked=9.5)
    return run.closes()


def call(command, *args):
    return CliRunner().invoke(command, [str(a) for a in args])


def test_findings_of_severity_error_exit_10(failed):
    result = call(report, failed.dir.path)
    assert result.exit_code == 10
    assert result.stdout.endswith("exit code 1: rank 2\n")
    for path in (failed.dir.report_json, failed.dir.report_text, failed.dir.report_html):
        assert path.exists()


def test_success_exits_0(tmp_path):
    run = MadeRun(tmp_path)
    run.rest(0)
    assert call(report, run.closes().dir.path).exit_code == 0


def test_json_stands_alone_on_standard_output(failed):
    result = call(report, "--json", failed.dir.path)
    value = json.loads(result.stdout)
    jsonschema.validate(value, json.loads((asset_dir("configs") / "report.schema.json").read_text()))
    assert (result.exit_code, value["exit_code_of"]) == (10, "rank 2")


def test_html_to_a_path(failed, tmp_path):
    call(report, failed.dir.path, "--html", tmp_path / "page.html")
    assert "rank 2 raised ValueError" in (tmp_path / "page.html").read_text()


def test_a_bundle_is_written_and_its_size_is_said(failed, tmp_path):
    result = call(report, "--json", failed.dir.path, "--bundle", tmp_path / "ticket.zip")
    assert result.exit_code == 10 and json.loads(result.stdout)["exit_code_of"] == "rank 2"
    with zipfile.ZipFile(tmp_path / "ticket.zip") as archive:
        listed = json.loads(archive.read(f"{failed.dir.id}/bundle.json"))
        assert listed["files"] == len(archive.namelist()) - 1
    assert re.search(rf"ticket\.zip: \d[\d.]* \w+, {listed['files']} files", result.stderr)
    assert (tmp_path / "ticket.zip").stat().st_mode & 0o777 == 0o600


def test_a_bundle_to_nowhere(failed):
    result = call(report, failed.dir.path, "--bundle", "/nonexistent/ticket.zip")
    assert isinstance(result.exception, UsageError)


def test_html_to_nowhere(failed):
    result = call(report, failed.dir.path, "--html", "/nonexistent/page.html")
    assert isinstance(result.exception, UsageError)
    assert "/nonexistent/page.html" in result.exception.message


def test_nothing_to_analyse(tmp_path):
    folder = tmp_path / "20260101T000000Z-x-beef"
    (folder / "attempts").mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    assert isinstance(call(report, folder).exception, NothingToAnalyse)


def test_unreadable(tmp_path):
    folder = tmp_path / "20260101T000000Z-x-beef"
    (folder / "job.json").mkdir(parents=True)
    error = call(report, folder).exception
    assert isinstance(error, EvidenceUnreadable) and "job.json" in error.message


@pytest.mark.parametrize("words", [[report], [diff]], ids=["report", "diff"])
def test_what_nobody_foresaw_in_a_runs_files_is_a_sentence(failed, tmp_path, monkeypatch, words):
    other = MadeRun(tmp_path / "other")
    other.rest(0)
    monkeypatch.setattr("distdbg.diagnosis.verdict.build_report", lambda _: {}["topology"])
    runs = [failed.dir.path, other.closes().dir.path][: 1 if words == [report] else 2]
    error = call(*words, *runs).exception
    assert isinstance(error, EvidenceUnreadable) and error.exit_code == 5
    assert f"{str(failed.dir.path)!r}: " in error.message and "(test_report_command.py:" in error.message
    assert "KeyError" not in str(error)


def test_a_full_disk_is_said_and_the_report_shown(failed, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write has it: without a name

    monkeypatch.setattr("distdbg.collect.runs.report_files.write_report", write)
    result = call(report, failed.dir.path)
    assert result.stderr == "distdbg: the report files were not written: No space left on device\n"
    assert result.exit_code == 10 and "rank 2 raised ValueError" in result.stdout


def test_an_attempt_that_is_not_there(failed):
    error = call(report, failed.dir.path, "--attempt", "3").exception
    assert isinstance(error, NothingToAnalyse) and error.remedy.startswith("It has: 1")


def test_findings_lists_every_id_of_every_check():
    listed = {line.split()[0] for line in call(findings).stdout.splitlines()}
    assert listed >= {doc.id for rule in all_rules() for doc in rule.docs}
    assert {doc["id"] for doc in json.loads(call(findings, "--json").stdout)} == listed


def test_one_finding_is_documented():
    text = call(findings, "rank_killed").stdout
    for word in ("means", "seen", "do", "source", "https://"):
        assert word in text
    assert json.loads(call(findings, "rank-killed", "--json").stdout)["severity"] == "error"


def test_a_typo_gets_the_nearest_id():
    error = call(findings, "rank-kiled").exception
    assert isinstance(error, UsageError) and "rank-killed" in error.remedy


def test_no_report_is_written_through_a_link(failed, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (failed.dir.path / "report").symlink_to(outside)
    result = call(report, failed.dir.path)
    assert result.exit_code == 10 and "symbolic link" in result.output and not list(outside.iterdir())
