"""Secrets of a job stand in no report, also in one that is rebuilt without its environment; its own logs keep them."""

from __future__ import annotations

import shutil

import pytest

pytestmark = pytest.mark.slow
SECRETS = {"TRACKER_API_KEY": "tr4cker-k3y-0000", "STORE_TOKEN": "s3cr3t/store+value"}
SCRIPT = """
import os, sys
print("logging in with", os.environ["TRACKER_API_KEY"], file=sys.stderr, flush=True)
raise RuntimeError(f"refused {os.environ['TRACKER_API_KEY']} and {os.environ['STORE_TOKEN']} of {sys.argv[-1]}")
"""


def test_no_report_shows_a_value_of_the_jobs_secrets(distdbg, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    values = (*SECRETS.values(), "argv-t0ken-11")
    done = distdbg("launch", "--nproc-per-node", "1", "train.py", "--token", values[2], env=SECRETS)
    assert done.code == 1, done
    shown = [done.err.partition("exit code")[2], *_forms(done.run)]  # above stands what the rank itself printed
    shutil.rmtree(done.run.report_json.parent)
    assert distdbg("report", done.run.path).code == 10
    shown += [distdbg("explain", done.run.path).out, distdbg("report", done.run.path, "--json").out, *_forms(done.run)]
    for text in (*shown, done.run.job.read_text(), done.run.events.read_text()):
        assert not [value for value in values if value in text], text
    assert "RuntimeError: refused ********" in shown[1]
    assert all(value in distdbg("logs", done.run.path, "--stream", "stderr").out for value in values), (
        "the user's own logs are as they are"
    )


def _forms(run):
    return [path.read_text() for path in (run.report_text, run.report_json, run.report_html)]
