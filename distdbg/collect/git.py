"""The state of the repository that a script stands in: commit, branch, and whether files are changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_WITHIN_S = 5.0


def git_state(folder: Path) -> dict[str, Any]:
    """{"commit", "branch", "dirty"}, or {"unknown": why}. Never asks for a password, never takes a lock."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except FileNotFoundError:
        return {"unknown": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"unknown": f"git did not answer within {_WITHIN_S:.0f} s"}
    except subprocess.CalledProcessError:
        return {"unknown": "not in a git repository"}
    return {"commit": commit, "branch": branch, "dirty": bool(changed)}


def _git(folder: Path, *words: str) -> str:
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN_S, check=True
    )
    return done.stdout.decode("utf-8", "replace").strip()
