import os
import subprocess

import pytest

from distdbg.collect.machine.versions import git_state


def git(folder, *words):
    done = subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, need):
    need("git", "git")
    folder = tmp_path / "my repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "train.py").write_text("pass\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_commit_branch_and_changes(repository):
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == {"commit": commit, "branch": "trunk", "dirty": False}
    (repository / "new.py").write_text("")
    assert not git_state(repository)["dirty"], "a file that git does not know"
    (repository / "train.py").write_text("changed\n")
    inner = repository / "inner"
    inner.mkdir()
    assert git_state(inner) == {"commit": commit, "branch": "trunk", "dirty": True}
    git(repository, "checkout", "-q", "--detach")
    assert git_state(repository)["branch"] is None


def test_it_speaks_of_the_scripts_repository_whatever_is_inherited(repository, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert git_state(repository)["branch"] == "trunk"


def test_what_is_unknown_and_why(tmp_path, need, monkeypatch):
    need("git", "git")
    assert git_state(tmp_path) == {"unknown": "not in a git repository"}
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == {"unknown": "the repository has no commit yet"}
    assert "unknown" in git_state(tmp_path / "missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == {"unknown": "git is not installed"}


def test_a_git_that_does_not_answer(tmp_path, monkeypatch):
    """A fake that reads from a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "git").write_text(f"#!/bin/sh\nexec < '{tmp_path / 'pipe'}'\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert git_state(tmp_path, within=0.2) == {"unknown": "git did not answer within 0.2 s"}


def test_a_repositorys_configuration_runs_nothing(repository):
    """core.fsmonitor names a program that git status would start."""
    hook = repository / "evil"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(hook))
    assert git_state(repository)["branch"] == "trunk"
    assert not (repository / "ran").exists()
