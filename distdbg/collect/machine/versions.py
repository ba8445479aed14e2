"""Find the versions of a job's software without importing any of it, and the state of its script's git repository."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from distdbg import __version__

_DRIVER = Path("/proc/driver/nvidia/version")
#: Named in job.json where they are installed.
_LIBRARIES = ("transformers", "accelerate", "lightning", "torchtitan", "deepspeed", "numpy", "triton")
_WITHIN_S = 5.0
#: A hook's or a wrapper's git would speak of another repository.
_NOT_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX")


def versions() -> dict[str, str]:
    """Name -> version; what is not there is left out."""
    torch = _torch()
    found = {
        "distdbg": __version__,
        "python": platform.python_version(),
        "torch": torch.get("__version__", ""),
        "cuda": torch.get("cuda", ""),
        "nccl": _nccl(),
        "py-spy": _installed("py-spy"),
        "driver": driver_version() or "",
        **{name: _installed(name) for name in _LIBRARIES},
    }
    return {name: version for name, version in found.items() if version}


def version_lines() -> list[str]:
    """The lines of `distdbg --version`; a missing package is listed with the reason."""
    torch = _torch()
    with_cuda = "cuda" in torch
    nccl = _nccl() or (
        "part of torch, version not known without importing it" if with_cuda else "none: torch without CUDA"
    )
    elsewhere = shutil.which("py-spy")
    found = {
        "distdbg": __version__,
        "python": platform.python_version(),
        "torch": torch.get("__version__", "not installed") + (f", CUDA {torch['cuda']}" if with_cuda else ""),
        "nccl": nccl if torch else "none: torch is not installed",
        "py-spy": _installed("py-spy") or (f"at {elsewhere}" if elsewhere else "not installed"),
        "driver": driver_version() or "none: no NVIDIA driver is loaded",
    }
    return [f"{name} {version}" for name, version in found.items()]


def torch_version() -> str | None:
    """None without torch."""
    return _torch().get("__version__")


def _torch() -> dict[str, str]:
    """What torch/version.py says, as text: __version__, cuda, hip; empty without torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # somebody has put half a torch into sys.modules
        return {}
    if spec is None or not spec.submodule_search_locations:
        return {}
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    assigned = re.findall(r"""^(__version__|cuda|hip)\b[^=\n]*=\s*['"]([^'"\n]+)['"]""", text, re.MULTILINE)
    return {"__version__": _installed("torch") or "of unknown version"} | dict(assigned)


def _nccl() -> str:
    """NCCL's version, of the package that torch's CUDA wheels bring; empty where NCCL is part of torch, or absent."""
    return next((v for v in (_installed(f"nvidia-nccl-cu{n}") for n in (13, 12, 11)) if v), "")


def driver_version(path: Path = _DRIVER) -> str | None:
    """The NVIDIA kernel driver's, where it is loaded."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text(errors="replace"))
    except OSError:
        return None
    return found.group(1) if found else None


def _installed(name: str) -> str:
    try:
        return str(importlib.metadata.version(name) or "")
    except Exception:  # not installed; or metadata that is broken, which is not ours to judge
        return ""


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
    return _read_status(done.stdout.decode("utf-8", "surrogateescape"))


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return inherited | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _read_status(text: str) -> dict[str, Any]:
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
