"""`distdbg guards`, and what a launch does with --guard."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # the command line again and again

PROGRAMS = Path(__file__).parents[1] / "programs" / "guards"


def test_lists_what_each_costs_and_where_it_is_blind(distdbg):
    done = distdbg("guards", "--json")
    assert done.code == 0, done
    guards = {guard["id"]: guard for guard in json.loads(done.out)}
    assert guards["missing-set-epoch"]["modes"] == ["off", "warn", "fix", "error"]
    assert (guards["weights-desynced"]["default"], guards["seeds-identical"]["default"]) == ("warn", "off")
    assert all(guard["costs"] and guard["blind"] for guard in guards.values())
    text = distdbg("guards", "checkpoint-race").out
    assert "several ranks write the same checkpoint file" in text and "off, warn (default)" in text
    assert distdbg("guards", "nothing").code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("missing-set-epok=off", "did you mean 'missing-set-epoch'"),
        ("checkpoint-race=error", "judged over all ranks"),
        ("eval-with-grad=fix", "cannot be mended safely"),
        ("eval-with-grad=loud", "off or warn or error"),
        ("eval-with-grad", "not ID=MODE"),
    ],
)
def test_a_wrong_guard_is_said_before_anything_runs(distdbg, words, says):
    done = distdbg("launch", "--guard", words, "train.py")
    assert done.code == 2 and says in " ".join(done.err.split()), done


def test_a_job_file_can_say_it(distdbg, tmp_path):
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "job.yaml").write_text("script: train.py\nguards: {missing-set-epoch: fix, eval-with-grad: off}\n")
    done = distdbg("launch", "--config", "job.yaml", "--guard", "eval-with-grad=error", "--dry-run")
    assert "DISTDBG_GUARDS=missing-set-epoch=fix,eval-with-grad=error" in done.out.replace("'", ""), done
    (tmp_path / "job.yaml").write_text("script: train.py\nguards: {missing-set-epok: fix}\n")
    assert "job.yaml:2: " in distdbg("launch", "--config", "job.yaml").err


def test_a_finding_is_on_the_terminal_and_changes_no_exit_code(distdbg):
    program = PROGRAMS / "missing-set-epoch" / "bad.py"
    done = distdbg("launch", "--nodes", 2, "--nproc-per-node", 2, program)
    assert done.code == 0, done
    assert "missing-set-epoch" in done.err and "bad.py:13 in one_epoch" in " ".join(done.err.split()), done
    report = json.loads(done.run.report_json.read_text())
    assert report["outcome"] == "succeeded"
    (finding,) = report["findings"]
    assert (finding["id"], finding["severity"], finding["ranks"]) == ("missing-set-epoch", "warning", [0, 1, 2, 3])


def test_the_mode_error_ends_the_job_with_the_finding(distdbg):
    program = PROGRAMS / "missing-set-epoch" / "bad.py"
    done = distdbg("launch", "--nproc-per-node", 2, "--guard", "missing-set-epoch=error", program)
    assert done.code == 1, done
    assert "GuardError: missing-set-epoch: two passes had the same order" in " ".join(done.err.split()), done


def test_the_self_test_shows_one_guard_fire_and_stay_silent(distdbg):
    done = distdbg("guards", "--selftest", "versions-differ")
    assert done.code == 0, done
    assert "3 of 3 programs as they should be" in done.out
