"""The launch on a job's first node and the directory that its submitter made."""

import os

import pytest

from distdbg.errors import UsageError
from distdbg.launch.backends.joining import JOIN_RUN, joined_run
from distdbg.rundir import create_run_dir


def test_nothing_to_join(monkeypatch):
    assert joined_run() is None


def test_the_directory_is_joined_and_the_ranks_do_not_hear_of_it(tmp_path, monkeypatch):
    made = create_run_dir("x", parent=tmp_path)
    monkeypatch.setenv(JOIN_RUN, str(made.path))
    assert joined_run() == made
    assert JOIN_RUN not in os.environ


def test_attempts_count_on(tmp_path):
    made = create_run_dir("x", parent=tmp_path)
    assert made.next_attempt == 1
    for number in (1, 2, 10):
        made.attempt(number).folder.mkdir()
    assert made.next_attempt == 11


def test_one_that_this_host_does_not_see(tmp_path, monkeypatch):
    monkeypatch.setenv(JOIN_RUN, str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="made where the job was submitted, is not to be seen on"):
        joined_run()
