"""With --json a command that fails prints a report, whatever its exit code is, unless it was called wrongly."""

from __future__ import annotations

import json

import click
import jsonschema
import pytest

from distdbg.assets import asset_dir
from distdbg.cli import cli
from tests.cli.test_bad_input import READERS, answer, words_of

SCHEMA = json.loads((asset_dir("configs") / "report.schema.json").read_text())
#: one JSON object a line
LINES = {"logs", "top"}


def takes_json(words: str) -> bool:
    command: click.Command | None = cli
    for word in words.split():
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    return command is not None and any("--json" in parameter.opts for parameter in command.params)


AS_JSON = [words for words in READERS if words.split()[0] not in LINES and takes_json(words)]


def test_the_commands_that_judge_are_among_them():
    assert {"explain", "report", "hang-dump", "lint", "profile", "replay", "memory analyze", "diff"} <= set(AS_JSON)


@pytest.mark.parametrize("given", ["missing", "folder", "garbage"])
@pytest.mark.parametrize("command", AS_JSON)
def test_a_failure_is_a_report(command, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 20)
    code, out, err = answer([*words_of(command, given), "--json"])
    if code == 2:
        assert not out, out
        return
    report = json.loads(out)
    assert report["schema"] == "distdbg.report/1" and report["run"] is None and report["outcome"] is None
    assert report["findings"] == [] and report["unknown"], report
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert err.startswith("distdbg: ") or command == "lint", err


def test_what_is_unknown_is_why_it_failed_and_holds_no_secret(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = answer(["report", "hf_abcdefghijklmnopqrstuvwxyz", "--json"])
    assert code == 3
    assert "no run is called" in json.loads(out)["unknown"][0]["because"]
    assert "abcdefgh" not in out


def test_secret_of_the_environment_is_masked_in_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    _, out, err = answer(["report", "of-correct-horse", "--json"])
    assert json.loads(out)["unknown"] and "horse" not in out + err


def test_an_error_of_ours_is_a_report_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("distdbg.collect.runs.explaining.load", lambda _what: 1 / 0)
    code, out, _ = answer(["explain", "--json", "."])
    assert code == 1 and json.loads(out)["unknown"]


def test_a_job_of_the_user_that_takes_json_is_no_wish_for_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = answer(["bisect", "--vary", "--steps=1", "make", "--json"])
    assert code == 2 and not out
