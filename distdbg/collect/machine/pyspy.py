"""Collect Python stacks of a running process with py-spy, also of one that holds the GIL or is stopped.

Plain: 10-20 ms, the target paused for about 12 ms. Without a pause (`--nonblocking`) where it cannot be stopped, or
is stopped already. With `native` C frames too: about 1 s of CPU, the target paused for most of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from distdbg.evidence.frames import module_path

#: Of an environment whose lib/python3.x/site-packages this file lies in.
_INSTALLED = Path(os.path.normpath(Path(__file__).resolve().parents[2] / "../../../../bin/py-spy"))
#: Who is at the other side of a send or recv, and who makes a process group.
_KEPT = ("src", "dst", "group_src", "group_dst", "global_ranks_in_group", "split_from")

_C10D = "torch/distributed/distributed_c10d.py"


class PySpyFailed(Exception):
    """Says why there are no stacks."""


def find_pyspy() -> str | None:
    """Beside this interpreter first: its version is the one that was installed with us. An image's interpreter has
    none beside it, where what was installed with us is mounted at its own path."""
    beside = Path(sys.executable).with_name("py-spy")
    return next((str(path) for path in (beside, _INSTALLED) if path.exists()), None) or shutil.which("py-spy")


def stacks(pid: int, *, within_s: float, native: bool = False, values: bool = False) -> list[dict[str, Any]]:
    """py-spy's own JSON: one object a thread, innermost frame first. Raises PySpyFailed.

    Its `--subprocesses` adds nothing to JSON (py-spy 0.4.3): children are asked one by one. Of the variables
    only those that say for which ranks torch waits are kept, unless `values` asks for all.
    """
    tool = find_pyspy()
    if tool is None:
        raise PySpyFailed("py-spy is not installed")
    command = [tool, "dump", "--json", "--pid", str(pid), "--locals"]
    if native:
        return _run([*command, "--native"], within_s, values)
    try:
        return _run(command, within_s, values)
    except PySpyFailed as first:
        try:
            return _run([*command, "--nonblocking"], within_s, values)
        except PySpyFailed as second:
            same = str(first) == str(second)
            raise PySpyFailed(str(first) if same else f"{first}; without stopping it: {second}") from None


def _run(command: list[str], within_s: float, values: bool) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=within_s, check=False, stdin=subprocess.DEVNULL,
            env=os.environ | {"RUST_BACKTRACE": "0"},  # its own stack is no cause
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PySpyFailed(f"py-spy did not answer within {within_s:g} s") from None
    except OSError as error:
        raise PySpyFailed(f"py-spy cannot be run: {error.strerror}") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PySpyFailed(_reason(words) or f"py-spy ended with exit code {done.returncode}")
    try:
        threads = json.loads(done.stdout)
    except ValueError:
        raise PySpyFailed("py-spy printed no JSON") from None
    if not isinstance(threads, list):
        raise PySpyFailed("py-spy printed something else than a list of threads")
    if not values:
        for thread in threads:
            for frame in thread.get("frames", ()):
                frame["locals"] = [v for v in frame.get("locals") or () if _says_who(v, frame)]
    return threads


def _says_who(variable: dict[str, Any], frame: dict[str, Any]) -> bool:
    return variable.get("name") in _KEPT and module_path(str(frame.get("filename"))) == _C10D


def _reason(lines: list[str]) -> str:
    """The first cause that py-spy names; its advice is for another reader."""
    if any("Failed to find python version" in line for line in lines):
        return "py-spy finds no Python in this process"
    noise = ("Error: Failed to", "Caused by:", "Reason: Error: Failed")
    told = [line.strip() for line in lines if line.strip() and not line.strip().startswith(noise)]
    return (told[0] if told else lines[0] if lines else "")[:200]
