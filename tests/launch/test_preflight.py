"""`distdbg preflight` that is interrupted shows what the nodes have answered."""

from __future__ import annotations

import json
import os
import signal

import pytest
from click.testing import CliRunner

from distdbg.cli.commands.preflight import command
from distdbg.launch import preflight


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("step", "looks_known"), [("looked", False), ("met", True)])
def test_interrupted_preflight_reports_what_was_answered(tmp_path, monkeypatch, number, step, looks_known):
    monkeypatch.chdir(tmp_path)
    wait = preflight._Probes.wait

    def interrupted(probes, kind, within, first_within=None):
        if kind == step:
            os.kill(os.getpid(), number)
        wait(probes, kind, 60, 60)

    monkeypatch.setattr(preflight._Probes, "wait", interrupted)
    done = CliRunner().invoke(command, ["--on", "local", "--nodes", "2", "--no-allreduce", "--json"])
    assert done.exit_code == 130, done.output
    report = json.loads(done.stdout)
    unknown = {u["what"]: u["because"] for u in report["unknown"]}
    assert unknown["what the nodes have not answered"] == "the preflight was interrupted"
    assert any(what.startswith("disk of ") for what in unknown) is not looks_known
    assert not [f for f in report["findings"] if f["id"] == "unreachable"]
    assert os.listdir() == []


def test_words_of_ssh_are_masked(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text('#!/bin/sh\necho "refused $MY_PASSWORD" >&2; exit 255\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["--hosts", "a,b"])
    assert done.exit_code == 10 and "refused ********" in done.output and "horse" not in done.output, done.output
