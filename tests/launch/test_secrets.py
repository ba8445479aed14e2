"""Secrets of a job stand in no report, also in one that is rebuilt without its environment; its own logs keep them."""

from __future__ import annotations

import json
import os
import shutil
import zipfile

import pytest

pytestmark = pytest.mark.slow
SECRETS = {
    "TRACKER_API_KEY": "tr4cker-k3y-0000",
    "STORE_TOKEN": "s3cr3t/store+value",
    "SX_DB_PASSWORD": "Pa(ren)thesis9",
    "SX_TOKEN": "correct horse battery staple",
    "SX_CREDENTIALS": '{"k":"JsonSecret9999"}',
    "SX_SECRET": "line one of it\nline two of it",
    "SX_QUOTES": "no secret by its name",
    "OTHER_PASSWORD": "a;b<c>'d\"e,f[g]{h}\\ijk",
}
FROM_JOB_FILE, FROM_ARGUMENTS = "from the (job) file 77", "argv-t0ken-11"
SCRIPT = """
import base64, json, os, sys, urllib.parse
values = [v for n, v in os.environ.items() if n in {names!r}] + [sys.argv[-1]]
for value in values:
    raw = value.encode()
    print("logging in with", value, repr(value), json.dumps(value), urllib.parse.quote(value),
          base64.b64encode(b"me:" + raw).decode(), file=sys.stderr, flush=True)
raise RuntimeError(f"refused {{values}} and {{' '.join(values)}}")
"""


def test_no_report_shows_a_value_of_the_jobs_secrets(distdbg, tmp_path):
    names = [*(name for name in SECRETS if name != "SX_QUOTES"), "FILE_TOKEN"]
    (tmp_path / "train.py").write_text(SCRIPT.format(names=names))
    (tmp_path / "job.yaml").write_text(
        f"script: train.py\nnproc_per_node: 1\nenv: {{FILE_TOKEN: {json.dumps(FROM_JOB_FILE)}}}\n"
        f"args: [--token, {FROM_ARGUMENTS}]\n"
    )
    values = [*(SECRETS[name] for name in names if name in SECRETS), FROM_JOB_FILE, FROM_ARGUMENTS]
    done = distdbg("launch", "--config", "job.yaml", env=SECRETS | {"SHORT_PIN_PASSWORD": "x7#q"})
    assert done.code == 1, done
    shown = [done.err.partition("rank-exception")[2], *_forms(done.run)]  # above stands what the rank itself printed
    shutil.rmtree(done.run.report_json.parent)
    assert distdbg("report", done.run.path).code == 10
    shown += [distdbg("explain", done.run.path).out, distdbg("report", done.run.path, "--json").out, *_forms(done.run)]
    assert distdbg("report", done.run.path, "--bundle", "t.zip").code == 6, "nobody here knows the short password"
    assert not (tmp_path / "t.zip").exists()
    packed = distdbg("report", done.run.path, "--bundle", "t.zip", env={"SHORT_PIN_PASSWORD": "x7#q"})
    assert packed.code == 10, packed
    with zipfile.ZipFile(tmp_path / "t.zip") as archive:
        shown += [archive.read(name).decode() for name in archive.namelist()]
    shown += [done.run.job.read_text(), done.run.events.read_text()]
    parts = [*values, "JsonSecret9999", "horse", "thesis9", "line two"]
    for text in shown:
        assert not [v for v in parts if v in text or json.dumps(v)[1:-1] in text or repr(v)[1:-1] in text], text
    assert "RuntimeError: refused" in shown[1] and "********" in shown[1]
    assert all(value in distdbg("logs", done.run.path, "--stream", "stderr").out for value in values), (
        "the user's own logs are as they are"
    )


def test_no_bundle_is_written_if_the_record_of_the_job_is_lost(distdbg, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    run = distdbg("launch", "--nproc-per-node", "1", "train.py").run
    whole = run.job.read_text()
    for damage in (lambda: run.job.write_text(whole[: len(whole) // 2]), lambda: os.unlink(run.job)):
        damage()
        done = distdbg("report", run.path, "--bundle", "t.zip", "--json")
        assert done.code == 6 and "job.json" in done.err and not (tmp_path / "t.zip").exists(), done
        assert "whether this report shows a secret of the job" in [u["what"] for u in json.loads(done.out)["unknown"]]


def _forms(run):
    return [path.read_text() for path in (run.report_text, run.report_json, run.report_html)]
