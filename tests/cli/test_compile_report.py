"""`distdbg compile-report --compare-eager`: the compiled run's report comes, whatever becomes of the run without."""

import json

import pytest
from click.testing import CliRunner

import distdbg.cli.commands.compile_report
import distdbg.collect.runs.run_evidence
from distdbg.cli import cli
from distdbg.errors import CannotStart
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.rundir import RunDir


def evidence(losses):
    fields = {"compiled": 3, "functions": 2, "seconds": 6.5, "step_ms": [2.0] * 6, "losses": {"train.py:9": losses}}
    rank = RankRecord(0, 0, 0, "here", guards=(GuardFact(0, "compile", fields),))
    return RunEvidence({}, 1, (rank,), ())


@pytest.fixture
def report(monkeypatch, tmp_path):
    """Runs the command on launches that end with these codes, or raise these errors."""
    monkeypatch.setattr(
        distdbg.collect.runs.run_evidence, "load_evidence", lambda _run: evidence([[1, 0.5], [2, 0.25]])
    )
    script = tmp_path / "train.py"
    script.write_text("")

    def run(*ends, options=("--compare-eager",)):
        left = iter(enumerate(ends))

        def launch(_config, **_given):
            number, end = next(left)
            if isinstance(end, Exception):
                raise end
            return end, RunDir(tmp_path / f"run-{number}")

        monkeypatch.setattr(distdbg.cli.commands.compile_report, "launch", launch)
        done = CliRunner().invoke(cli, ["compile-report", *options, str(script)], catch_exceptions=False)
        assert next(left, None) is None
        return done

    return run


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [
        (7, 7, "the run without compilation failed with exit code 7: {folder}/run-1"),
        (
            CannotStart("train-eager is there already", "Name another."),
            2,
            "did not begin: train-eager is there already",
        ),
    ],
)
def test_where_the_eager_run_fails_the_compiled_ones_report_is_printed(report, tmp_path, end, code, why):
    done = report(0, end)
    assert done.exit_code == code
    assert "3 graphs of 2 functions compiled" in done.output and "compiled  2 ms a step" in done.output
    said = f"Unknown: what it is like without compilation, because {why.format(folder=tmp_path)}"
    assert said.replace("because did", "because the run without compilation did") in done.output
    result = json.loads(report(0, end, options=("--compare-eager", "--json")).stdout)
    assert result["graphs"] == 3 and why.format(folder=tmp_path) in result["unknown"][-1]["because"]
    assert result["losses"]["compared"] == 0


def test_the_job_s_own_failure_ends_it_and_success_differs_from_nothing_found(report):
    failed = report(5)
    assert failed.exit_code == 5 and "graphs" not in failed.output
    both = report(0, 0)
    assert both.exit_code == 0 and "losses of the first 2 steps: the same to the bit" in both.output
    assert report(0, options=()).exit_code == 0
