"""The child process that knows torch: `python <absolute>/distdbg/shrink/child.py FD`.

Tasks come as lines of standard input, and answers go as lines to FD.

Torch takes seconds to load and hundreds of megabytes: the process that copies bytes does without.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import gc
import json
import os
import queue
import threading
from pkgutil import resolve_name
from typing import Any, BinaryIO

from distdbg.errors import DistdbgError

#: name of a task -> the function that does it, `module:function`; it takes the task's arguments as one dict
TASKS = {
    "load": "distdbg.shrink.probe.loading:load",
    "probe": "distdbg.shrink.probe.task:probe",
    "random": "distdbg.shrink.probe.task:random_weights",
    "memory": "distdbg.shrink.estimate.tracking:run",
    "plain": "distdbg.shrink.checkpoint.plain_torch:run",
    "distributed": "distdbg.shrink.checkpoint.plain_dcp:run",
    "pickled": "distdbg.shrink.checkpoint.pickled:run",
    "verify": "distdbg.shrink.verify.task:verify",
    "costs": "distdbg.shrink.estimate.costs:run",
}

#: loading torch and transformers makes millions of objects that stay: looking through them again takes a seventh of it
SELDOM = (100_000, 50, 1000)


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """`result`, or `error` where it is one of ours. Any other ends the child: who knows what it has left behind."""
    try:
        return {"result": resolve_name(TASKS[task["task"]])(task)}
    except DistdbgError as error:
        return {"error": {"class": type(error).__name__, "message": error.message, "remedy": error.remedy}}
    except Exception as error:
        if "No space left on device" not in str(error):  # as libraries of other languages say it, too
            raise
        return {"error": {"class": "UsageError", "message": "the disk became full while a file was written",
                          "remedy": "Name a DST on another disk, or keep fewer layers."}}  # fmt: skip


def main(answers: BinaryIO) -> None:
    gc.set_threshold(*SELDOM)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(_standard_input(), tasks), daemon=True).start()
    while True:
        line = json.dumps(answer(json.loads(tasks.get())))
        answers.write(line.encode() + b"\n")
        answers.flush()


def _listen(asker: BinaryIO, tasks: queue.SimpleQueue[bytes]) -> None:
    """Serve tasks until the reader of the answers is gone: then the process ends, whatever it does."""
    for line in asker:
        tasks.put(line)
    os._exit(143)


def _standard_input() -> BinaryIO:
    """The stream of tasks. Code that runs here finds its standard input empty."""
    asker = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return asker


if __name__ == "__main__":
    main(os.fdopen(int(sys.argv[1]), "wb"))
