"""The archive of a run's evidence: what is in it, what is left out, and that no secret is in it."""

from __future__ import annotations

import json
import pickle
import zipfile

import pytest

from distdbg import secret_digests
from distdbg.collect.runs import bundle as bundling
from distdbg.collect.runs.bundle import write_bundle
from distdbg.collect.runs.whole_run import load_whole_run
from distdbg.diagnosis.verdict import build_report
from distdbg.hidden_values import SecretValue, record_value
from distdbg.rundir import RunDir
from tests.made_run import MadeRun

#: of the job, known by its digest alone
OWN = "correct-horse-battery"
TOKEN = "hf_abcdefghijklmnop0123"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIabcdefgh\n-----END PRIVATE KEY-----\n"
SECRETS = (OWN, TOKEN, "MIIabcdefgh", "hunter2hunter2")


@pytest.fixture
def run(tmp_path):
    made = MadeRun(tmp_path)
    job = made.job() | {"hidden_values": [record_value(SecretValue("LOGIN_TOKEN", OWN), b"salt")]}
    made.dir.job.write_text(json.dumps(job))
    made.prints(2, f"connecting with {OWN}\npassword=hunter2hunter2\n{KEY}loss 3.5\n")
    made.prints(0, f"{TOKEN}\n", "stdout")
    # An escape before each: as a text the last letter of the escape would be a part of it.
    made.raises(2, "ValueError", f"refused\n{OWN}\n{TOKEN}\t{TOKEN}", t=9.0)
    made.rest(-15, t=11.0, asked=9.5)
    return made.closes()


def bundled(run: RunDir, path):
    evidence = load_whole_run(run)
    with path.open("wb") as file:
        written = write_bundle(file, run, build_report(evidence), evidence)
    with zipfile.ZipFile(path) as archive:
        files = {name.removeprefix(f"{run.id}/"): archive.read(name) for name in archive.namelist()}
    return written, files


def test_no_file_holds_a_secret_and_the_evidence_is_there(run, tmp_path):
    _, files = bundled(run.dir, tmp_path / "t.zip")
    assert [(name, secret) for name, data in files.items() for secret in SECRETS if secret.encode() in data] == []
    assert json.loads(files["job.json"])["hidden_values"] == []
    assert {"report/report.json", "report/report.txt", "report/report.html", "events.jsonl"} <= {*files}
    assert b"loss 3.5" in files["attempts/1/ranks/00002/stderr.log"]
    (fact,) = [json.loads(line) for line in files["attempts/1/ranks/00002/facts.jsonl"].splitlines()]
    assert fact["op"] == "exception" and "refused" in fact["message"]


def test_a_report_that_is_rebuilt_from_it_has_the_same_findings(run, tmp_path):
    _, files = bundled(run.dir, tmp_path / "t.zip")
    for name, data in files.items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    copies = build_report(load_whole_run(RunDir(tmp_path / "copy")))
    assert [(f.id, f.ranks) for f in copies.findings] == [(f.id, f.ranks) for f in run.report().findings]


def test_what_cannot_be_masked_is_left_out(run, tmp_path):
    folder = run.files(1).folder
    (folder / "recorder.pickle").write_bytes(pickle.dumps({"token": TOKEN, "more": [0] * 9}))
    (folder / "cut.json").write_text(f'{{"a": "\\n{TOKEN}')
    (folder / "stderr.index").write_text("0 0\n")
    (tmp_path / "mine").write_text("mine")
    (folder / "link.log").symlink_to(tmp_path / "mine")
    for inner in ("nonfinite", "memory", "profile"):
        (folder / inner).mkdir()
        (folder / inner / "x.json").write_text("{}")
    written, files = bundled(run.dir, tmp_path / "t.zip")
    names = {f"attempts/1/ranks/00001/{name}" for name in ("recorder.pickle", "cut.json", "stderr.index", "link.log")}
    assert {path for path, _ in written.left_out} == names | {"nonfinite/", "memory/", "profile/"}
    assert not names & {*files} and not any(name.endswith("x.json") for name in files)
    assert {(row["path"], row["because"]) for row in json.loads(files["bundle.json"])["left_out"]} == {
        *written.left_out
    }


def test_a_long_log_keeps_its_end_and_no_part_of_a_key(run, tmp_path, monkeypatch):
    monkeypatch.setattr(bundling, "_MOST_LOG", 100)
    run.files(3).stdout.write_text("x\n" * 100 + KEY.replace("MII", "M" * 40 + "\nMII") + "the last line\n" * 3)
    _, files = bundled(run.dir, tmp_path / "t.zip")
    log = files["attempts/1/ranks/00003/stdout.log"]
    assert log.endswith(b"\nthe last line\n") and b"MII" not in log and len(log) < 200


def test_a_bundle_is_bounded_and_the_ranks_of_the_verdict_come_first(run, tmp_path, monkeypatch):
    run.files(2).stdout.write_text("a" * 5000)
    run.files(0).stdout.write_text("b" * 5000)
    before = bundled(run.dir, tmp_path / "all.zip")[0].bytes
    monkeypatch.setattr(bundling, "_MOST_ALL", before - 5000)
    written, files = bundled(run.dir, tmp_path / "t.zip")
    assert "attempts/1/ranks/00002/stdout.log" in files
    assert {path for path, _ in written.left_out} >= {"attempts/1/ranks/00003/exit.json"}


def test_candidates_beyond_the_limit_are_masked_untried(run, tmp_path, monkeypatch):
    monkeypatch.setattr(secret_digests, "_MAX_TRIES", 0)
    _, files = bundled(run.dir, tmp_path / "t.zip")
    assert OWN.encode() not in b"".join(files.values())
    assert b"loss 3.5" in files["attempts/1/ranks/00002/stderr.log"]
