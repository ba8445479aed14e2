"""Two runs side by side: what is called a difference, what is not, and what is said to be unknown."""

import json

import pytest
from click.testing import CliRunner

from distdbg.cli.commands.diff import command
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.report.comparison import as_json, compare
from distdbg.report.text.comparison_text import comparison_text
from tests.made_run import MadeRun


def steps(median, low, high, windows=40):
    return {"windows": windows, "median": median, "low": low, "high": high}


def made(folder, name, *, times=None, job=(), ranks=2, rss=3 << 30):
    run = MadeRun(folder, ranks=ranks, nodes=1, name=f"20260101T000000Z-{name}-beef")
    run.dir.job.write_text(json.dumps(run.job() | dict(job)))
    for rank in range(ranks):
        run.exits(rank, 0, peak_rss=rss, **({"step_times": times} if times else {}))
    return run.closes()


def compared(a, b):
    return compare(*((run.evidence(), run.report()) for run in (a, b)))


def of(found, part):
    return [d.words for d in found.differences if d.part == part]


def test_two_runs_of_one_job_went_alike(tmp_path):
    a, b = (made(tmp_path, name, times=steps(12.0 + n, 11.0, 14.0)) for n, name in enumerate("ab"))
    found = compared(a, b)
    assert found.differences == ()


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (steps(10.0, 9.8, 10.2), steps(20.0, 19.0, 21.0), "B is 2 times as slow"),
        (steps(30.0, 28.0, 33.0), steps(10.0, 9.0, 11.0), "B is 3 times as fast"),
        (steps(10.0, 9.0, 12.0), steps(11.9, 11.0, 14.0), None),  # within the spread
        (steps(10.0, 9.99, 10.01), steps(10.2, 10.19, 10.21), None),  # too little to be anything
    ],
)
def test_speed_differs_beyond_the_spread_of_both(tmp_path, one, other, words):
    found = compared(made(tmp_path, "a", times=one), made(tmp_path, "b", times=other))
    assert [d[: len(words or "")] for d in of(found, "speed")] == ([words] if words else [])


def test_speed_that_is_not_known_is_no_difference_and_the_reason_is_said(tmp_path):
    few = made(tmp_path, "few", times=steps(90.0, 80.0, 95.0, windows=2))
    found = compared(few, made(tmp_path, "none"))
    assert of(found, "speed") == []
    assert [u.what for u in found.unknown][:2] == ["step time of A", "step time of B"]
    assert "only 2 looks" in found.unknown[0].because
    off = made(tmp_path, "off", job={"worker_side": "off"})
    assert "no worker side" in compared(few, off).unknown[1].because
    assert "as far as is known" in comparison_text(found)


def test_memory_differs_from_a_share_on(tmp_path):
    a = made(tmp_path, "a")
    assert of(compared(a, made(tmp_path, "b", rss=(3 << 30) + (40 << 20))), "memory") == []
    (words,) = of(compared(a, made(tmp_path, "c", rss=6 << 30)), "memory")
    assert words == "most host memory of a rank: 3.00 GiB in A, 6.00 GiB in B (+100 %)"


def test_reasons_are_named_and_secrets_are_not_judged(tmp_path):
    a = made(tmp_path, "a")
    job = a.job()
    job["versions"] = {**job["versions"], "torch": "2.14.0", "nccl": "2.30"}
    job["git"] = {"commit": "1b2c3d4", "dirty": True}
    job["argv"] = ["distdbg", "launch", "--run-dir", "x", "--nodes", "1", "train.py", "--lr", "1e-3", "--seed=7"]
    job["environment"] = [*job["environment"][1:], {"name": "NEW", "value": "1", "origin": "--env"}]
    job["topology"] = {**job["topology"], "world_size": 4}
    found = compared(a, made(tmp_path, "b", job=job))
    assert of(found, "versions") == ["nccl: 2.30 in B, not in A", "torch: 2.13.0 in A, 2.14.0 in B"]
    assert of(found, "code") == ["commit: 1b2c3d4 in A, 1b2c3d4 with changes in B"]
    assert of(found, "command") == ["--lr: 3e-4 in A, 1e-3 --seed=7 in B"]
    assert "world_size: 2 in A, 4 in B" in of(found, "world")
    assert of(found, "environment") == ["NEW: 1 in B, not in A", "TORCH_FR_BUFFER_SIZE: 2000 in A, not in B"]
    assert found.unknown[-1].what == "whether WANDB_API_KEY is the same"
    assert "They differ in: versions, code, command, world, environment" in comparison_text(found)


def test_words_of_the_command_are_reported_with_their_option(tmp_path):
    a = made(tmp_path, "a")
    argv = [{"3e-4": "1e-3"}.get(word, word) for word in a.job()["argv"]]
    b = made(tmp_path, "b", job={"argv": [*argv[:2], "--name", "other", *argv[2:]]})
    assert of(compared(a, b), "command") == ["--lr: 3e-4 in A, 1e-3 in B"]


def failed(folder, name="failed"):
    run = MadeRun(folder, ranks=2, nodes=1, name=f"20260101T000000Z-{name}-beef")
    run.raises(1, "ValueError", "boom")
    run.rest(-15, asked=9.5)
    return run.closes()


def test_a_new_error_stands_first_and_makes_the_exit_code(tmp_path):
    a, b = made(tmp_path, "a"), failed(tmp_path)
    result = CliRunner().invoke(command, [str(a.dir.path), str(b.dir.path)])
    assert result.exit_code == 10
    assert "A succeeded with exit code 0, B failed with exit code 1" in result.stdout
    assert "rank-exception, only in B" in result.stdout
    again = CliRunner().invoke(command, [str(b.dir.path), str(a.dir.path), "--json"])
    printed = json.loads(again.stdout)
    assert (again.exit_code, printed["schema"], printed["new_errors"]) == (0, "distdbg.diff/1", [])
    (codes,) = [d for d in printed["differences"] if d["what"] == "exit codes"]
    assert (codes["part"], codes["a"], codes["b"]) == ("outcome", "-15 (rank 0), 1 (rank 1)", "0 (ranks 0-1)")


def test_findings_of_both_are_no_difference(tmp_path):
    found = compared(failed(tmp_path), failed(tmp_path, "again"))
    assert of(found, "findings") == []
    assert "rank-exception" in found.in_both
    assert as_json(found)["findings_in_both"] == list(found.in_both)


def test_what_cannot_be_compared_is_said(tmp_path, monkeypatch):
    a = made(tmp_path, "a")
    same = CliRunner().invoke(command, [str(a.dir.path)] * 2)
    assert isinstance(same.exception, UsageError)
    empty = tmp_path / "empty"
    (empty / "attempts").mkdir(parents=True)
    nothing = CliRunner().invoke(command, [str(a.dir.path), str(empty)])
    assert isinstance(nothing.exception, NothingToAnalyse)


def test_the_page_has_both_runs_over_their_steps_and_what_nvml_saw(tmp_path):
    """Without `--memory` the device's own count tells; what a run prints stays text."""
    runs = []
    for name, used, time in (("a", 10 << 30, 10.0), ("b", 30 << 30, 20.0)):
        run = MadeRun(tmp_path, 2, 1, name=f"20260101T000000Z-{name}-beef")
        run.looks(40, lambda rank, step, time=time: {"step_ms": time + rank})
        run.metrics(0, t=500, ranks=[{"rank": 1, "step": 3999}],
                    gpus=[{"index": 0, "memory_used": used, "ranks": [1]}])  # fmt: skip
        if name == "b":
            run.raises(1, "ValueError", "<script>alert(1)</script>")
        run.rest(0)
        runs.append(run.closes())
    page = tmp_path / "both.html"
    done = CliRunner().invoke(command, [str(run.dir.path) for run in runs] + ["--html", str(page)])
    assert done.exit_code == 10 and "30.00 GiB" in done.output, done.output
    text = page.read_text()
    assert text.count('class="curve"') >= 3 and "at most 21" in text and "by everybody" in text
    assert "<script" not in text and "&lt;script&gt;" in text
