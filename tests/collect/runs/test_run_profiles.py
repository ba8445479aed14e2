"""Profiles that the ranks of a run have left are part of its evidence; a run without any is as it was."""

import gzip
import json

import pytest

from distdbg.collect.files.trace_files import read_traces
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_profiles import with_profiles
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.trace.device import Watched
from distdbg.report.profile_document import profile_sections
from distdbg.report.text.renderer import TextRenderer
from distdbg.report.text.screen import Screen
from distdbg.rundir import RunDir
from tests.evidence.trace.cuda_trace import CudaTrace

BASE = 1_790_000_000.0


def profile(line_us, rank=0):
    built = CudaTrace()
    for n in range(4):
        at = 1000.0 * n
        built.step(n, at, 1000)
        built.frame("train.py", 1, "main", at, 1000)
        built.host("python_function", "<built-in method item of Tensor object at 0x1>", at + 10, line_us)
        built.host("cpu_op", "aten::item", at + 11, line_us - 2)
    head = {"baseTimeNanoseconds": int(BASE * 1e9), "distdbg": {"rank": rank, "host": "n0"}}
    return gzip.compress(json.dumps({**head, "traceEvents": built.events}).encode())


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
            (folder / "steps-8-11.json.gz").write_bytes(profile(400, rank))
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


def test_nvmls_looks_stand_beside_the_kernels_time(run):
    """Of hours of looks the few near the steps, of the node that the rank was on."""
    attempt = run.attempt(1)
    for number in (0, 1):
        files = attempt.node(number, f"n{number}")
        files.folder.mkdir(parents=True)
        looks = [{"t": BASE - 30_005 + 10 * n, "ranks": ["x" * 400], "gpus": [
                  {"index": 0, "utilisation": 7 if n < 3000 else 40 + 20 * (n - 3000) + 5 * number, "ranks": [0, 2]}]}
                 for n in range(4000)]  # fmt: skip
        files.metrics.write_text("torn\n" + "".join(json.dumps(look) + "\n" for look in looks))
    attempt.rank(2).exit.write_text('{"node_rank": 1}')
    seen = {p.rank: p.watched for p in with_profiles(load_evidence(run), run).profiles}
    assert seen == {0: Watched(0.5, 2, within=False), 2: Watched(0.55, 2, within=False)}
    files = [attempt.rank(rank).profiles()[-1] for rank in (0, 2)]
    profiles, _ = read_traces(files)
    assert [p.watched for p in profiles] == list(seen.values())
    shown = "\n".join(TextRenderer(Screen.of(width=120)).sections(profile_sections(profiles)))
    assert "rank 2: NVML: 55% busy (the median of 2 looks just before or after" in shown


def test_without_profiles_nothing_is_done(run):
    for files in run.attempt(1).ranks().values():
        for path in files.profiles():
            path.unlink()
    evidence = load_evidence(run)
    assert with_profiles(evidence, run) is evidence
