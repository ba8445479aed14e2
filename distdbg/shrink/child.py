"""The child process that knows torch: `python -m distdbg.shrink.child TASK.json ANSWER.json`.

Torch takes seconds to load and hundreds of megabytes: the process that copies bytes does without.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from distdbg.errors import DistdbgError

#: name of a task -> the module whose `run(arguments)` does it
TASKS = {
    "probe": "distdbg.shrink.probe.task",
    "memory": "distdbg.shrink.tracking",
    "costs": "distdbg.shrink.verify.costs",
    "plain": "distdbg.shrink.plain_torch",
    "pickled": "distdbg.shrink.pickled",
    "random": "distdbg.shrink.random_weights",
    "verify": "distdbg.shrink.verify.task",
}


def main(task_file: str, answer_file: str) -> None:
    task: dict[str, Any] = json.loads(Path(task_file).read_text(encoding="utf-8"))
    try:
        answer = {"result": importlib.import_module(TASKS[task["task"]]).run(task)}
    except DistdbgError as error:
        answer = {"error": {"class": type(error).__name__, "message": error.message, "remedy": error.remedy}}
    except Exception as error:
        if "No space left on device" not in str(error):  # as libraries of other languages say it, too
            raise
        answer = {"error": {"class": "UsageError", "message": "the disk became full while a file was written",
                            "remedy": "Name a DST on another disk, or keep fewer layers."}}  # fmt: skip
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


def end_with_who_asked() -> None:
    """Standard input closes with the process that would read the answer. What runs here finds it empty."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        os._exit(143)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_who_asked()
    main(*sys.argv[1:3])
