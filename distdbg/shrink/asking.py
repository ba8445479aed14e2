"""Gives the child process a task and takes its answer; its errors are raised here as they were there.

The child ends with this process, however that ends: it holds the other end of its standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distdbg import errors


def ask(task: str, **arguments: Any) -> Any:
    """The child's result. Raises what it raised; ToolMissing where torch or transformers are not installed."""
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as folder:
        question, answer = Path(folder, "task.json"), Path(folder, "answer.json")
        question.write_text(json.dumps({"task": task, **arguments}), encoding="utf-8")
        command = [sys.executable, "-m", "distdbg.shrink.child", str(question), str(answer)]
        with _lifeline() as end:
            done = subprocess.run(command, stdin=end, capture_output=True, text=True, check=False)
        if not answer.is_file():
            raise _why(done)
        found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        kind = getattr(errors, found["error"]["class"], errors.DistdbgError)
        raise kind(found["error"]["message"], found["error"]["remedy"])
    return found["result"]


@contextmanager
def _lifeline() -> Iterator[int]:
    """The end of a pipe that closes when this process is gone. The other end is nobody else's: no child inherits it."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def _why(done: subprocess.CompletedProcess[str]) -> errors.DistdbgError:
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit code {done.returncode}")
    if last.startswith(("ModuleNotFoundError", "ImportError")):
        return errors.ToolMissing(
            f"models cannot be built here: {last.partition(': ')[2]}", "Run `pip install 'distdbg[shrink]'`."
        )
    if done.returncode < 0:
        return errors.DistdbgError(
            f"the process that builds the model was ended by signal {-done.returncode}",
            "Look for the kernel's OOM killer.",
        )
    return errors.DistdbgError(f"the process that builds the model failed: {last}", done.stderr[-2000:])
