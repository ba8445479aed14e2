"""Following a run by its directory: what is shown, and which exit code it ends with."""

import os
import signal

import pytest

from distdbg.launch.live.follow import Following, JobStanding
from distdbg.rundir import create_run_dir
from tests.made_run import note


class Job:
    """What happens, turn by turn; over when nothing more does."""

    name = "Slurm job 7"
    may_cancel = True

    def __init__(self, *turns, code=None):
        self.turns, self.code = list(turns), code
        self.closed = False

    def standing(self, *, finished):
        if self.turns:
            text = self.turns.pop(0)
            return JobStanding(text() or "" if callable(text) else text)
        return JobStanding(over=True, code=self.code)

    def cancel(self):
        raise AssertionError

    def close(self):
        self.closed = True


@pytest.fixture
def run(tmp_path):
    return create_run_dir("x", parent=tmp_path)


def follow(run, job):
    code = Following(run, job, "none").until_end()
    assert job.closed
    return code


def test_its_own_word_counts(run, capfd):
    def launched():
        note(run, "launched")
        run.batch_log.write_text("2 x 2 ranks\n")

    def ended():
        note(run, "finished", exit_code=7)
        with run.batch_log.open("a") as file:
            file.write("the verdict\nexit code 7")

    job = Job("waits", "waits", "waits: Resources", launched, "runs on a,b", ended, code=1)
    assert follow(run, job) == 7
    err = capfd.readouterr().err.splitlines()
    assert err == ["distdbg: waits", "distdbg: waits: Resources", "2 x 2 ranks", "distdbg: runs on a,b", "the verdict",
                   "exit code 7"]  # fmt: skip


def test_what_ended_before_it_began(run, capfd):
    assert follow(run, Job("waits", code=143)) == 143
    assert "Slurm job 7 ended before any rank was started" in capfd.readouterr().err
    assert follow(run, Job()) == 76


def test_a_start_that_was_refused_is_no_launch(run):
    note(run, "launched")
    note(run, "not-started", because="x")
    assert follow(run, Job(code=2)) == 2


def test_what_left_no_word_is_explained_from_what_it_left(run, capfd):
    note(run, "launched")
    assert follow(run, Job("runs", code=137)) == 137
    assert run.report_json.exists() and run.id in capfd.readouterr().err


def test_the_end_of_one_start_is_not_that_of_a_requeued_run(run):
    note(run, "launched")
    note(run, "finished", exit_code=143)
    note(run, "requeued", because="Slurm warned it of its end")
    note(run, "launched")
    note(run, "finished", exit_code=0)
    assert follow(run, Job()) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_without_a_terminal_it_is_left(run, capfd, number):
    before = signal.getsignal(number)
    assert follow(run, Job("runs", lambda: os.kill(os.getpid(), number), *["runs"] * 50)) == 76
    assert f"`distdbg attach {run.id}` follows it again" in capfd.readouterr().err
    assert signal.getsignal(number) is before
