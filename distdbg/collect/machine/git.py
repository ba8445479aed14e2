"""Read the state of the git repository of a script: commit, branch, and whether files are changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_WITHIN_S = 5.0
#: A hook's or a wrapper's git would speak of another repository.
_NOT_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX")


def git_state(folder: Path, within: float = _WITHIN_S) -> dict[str, Any]:
    """{"commit", "branch", "dirty"}, or {"unknown": why}; branch is None where HEAD is detached.

    Untracked files do not make a tree dirty. Never asks for a password, takes no lock, runs nothing that the
    repository's configuration names.
    """
    settings = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    command = ["git", "-C", str(folder), *settings, "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(
            command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=within, check=False
        )
    except FileNotFoundError:
        return {"unknown": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"unknown": f"git did not answer within {within:g} s"}
    except (OSError, ValueError) as error:
        return {"unknown": f"git could not be started: {error}"}
    if done.returncode:
        return {"unknown": _why_not(done.stderr.decode("utf-8", "replace"))}
    return _read(done.stdout.decode("utf-8", "surrogateescape"))


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return inherited | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _read(text: str) -> dict[str, Any]:
    """git-status(1), porcelain format version 2: headers begin with `# `, changed files do not."""
    lines = text.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and " " in line[2:])
    commit, branch = headers.get("branch.oid"), headers.get("branch.head")
    if commit == "(initial)":
        return {"unknown": "the repository has no commit yet"}
    return {
        "commit": commit,
        "branch": None if branch == "(detached)" else branch,
        "dirty": any(line and not line.startswith("#") for line in lines),
    }


def _why_not(said: str) -> str:
    if "dubious ownership" in said:
        return "git does not trust this folder: it belongs to another user (git config safe.directory)"
    if "not a git repository" in said:
        return "not in a git repository"
    return f"git says: {(said.strip().splitlines() or ['nothing'])[0]}"
