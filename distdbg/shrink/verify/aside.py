"""Run checks in a process of their own, on another core, while this one makes others."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

Checks = Callable[[], dict[str, str]]


class ChecksAside:
    """A copy of this process that makes checks from now on. It must begin before torch's autograd has threads."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._pid = 0
        if sys.platform != "linux":  # elsewhere a copy of a process that has threads may not go on
            return
        answers, theirs = os.pipe()
        ours, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(answers)
            os.close(self._alive)
            _make(checks, theirs, ours)
        os.close(theirs)
        os.close(ours)
        self._answers = answers

    def result(self) -> dict[str, str]:
        """What the checks say. They are made here where the other process gave no answer."""
        if not self._pid:
            return self._checks()
        with os.fdopen(self._answers, "rb") as answers:
            said = answers.read()
        os.close(self._alive)
        os.waitpid(self._pid, 0)
        if not said:
            return self._checks()
        found: dict[str, str] = json.loads(said)
        return found


def _make(checks: Checks, answers: int, alive: int) -> NoReturn:
    """Never returns: the stack below is another process's."""
    try:
        threading.Thread(target=_end_with_its_reader, args=(alive,), daemon=True).start()
        import torch

        torch.set_num_threads(1)  # the threads of the pool were not copied
        said = json.dumps(checks()).encode()
        with os.fdopen(answers, "wb") as out:
            out.write(said)
    finally:
        os._exit(0)


def _end_with_its_reader(alive: int) -> None:
    os.read(alive, 1)
    os._exit(0)
