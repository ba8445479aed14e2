"""Profiles that the ranks of a run have left are part of its evidence; a run without any is as it was."""

import gzip
import json

import pytest

from distdbg.collect.run_evidence import load_evidence
from distdbg.collect.run_profiles import with_profiles
from distdbg.report.verdict import build_report
from distdbg.rundir import RunDir
from tests.evidence.cuda_trace import CudaTrace


def profile(line_us):
    built = CudaTrace()
    for n in range(4):
        at = 1000.0 * n
        built.step(n, at, 1000)
        built.frame("train.py", 1, "main", at, 1000)
        built.host("python_function", "<built-in method item of Tensor object at 0x1>", at + 10, line_us)
        built.host("cpu_op", "aten::item", at + 11, line_us - 2)
    return gzip.compress(json.dumps({"traceEvents": built.events}).encode())


@pytest.fixture
def run(tmp_path):
    """Ranks 0 to 2, of which rank 1 has no profile, and rank 2 an old one beside its newest."""
    script = tmp_path / "code" / "train.py"
    script.parent.mkdir()
    script.write_text("def main():\n    x = 1\n    return loss.item()\n")
    path = tmp_path / "run"
    for rank in range(3):
        folder = path / "attempts" / "1" / "ranks" / f"{rank:05d}" / "profile"
        folder.mkdir(parents=True)
        (folder.parent / "exit.json").write_text('{"exit_code": 0}')
        if rank != 1:
            (folder / "steps-8-11.json.gz").write_bytes(profile(400))
    (folder / "steps-2-5.json.gz").write_bytes(b"torn")
    job = {"cwd": str(script.parent), "program": ["train.py"], "topology": {"world_size": 3}}
    (path / "job.json").write_text(json.dumps(job))
    return RunDir(path)


def test_the_newest_profile_of_each_rank_is_read_and_judged(run):
    report = build_report(with_profiles(load_evidence(run), run))
    (finding,) = (f for f in report.findings if f.id == "sync-in-step")
    assert finding.ranks == (0, 2) and "train.py:3 in main" in finding.summary and "(ranks 0,2)" in finding.summary
    assert finding.evidence[0].path == "attempts/1/ranks/00000/profile/steps-8-11.json.gz"
    assert finding.explained_by is None and "40% of a step" in finding.cause


def test_what_cannot_be_read_is_unknown_and_the_rest_is_judged(run):
    path = run.attempt(1).rank(0).profile / "steps-8-11.json.gz"
    path.write_bytes(b"torn")
    report = build_report(with_profiles(load_evidence(run), run))
    assert [f.ranks for f in report.findings if f.id == "sync-in-step"] == [(2,)]
    assert any(u.what.endswith("00000/profile/steps-8-11.json.gz") and "not JSON" in u.because for u in report.unknown)


def test_without_profiles_nothing_is_done(run):
    for files in run.attempt(1).ranks().values():
        for path in files.profiles():
            path.unlink()
    evidence = load_evidence(run)
    assert with_profiles(evidence, run) is evidence
