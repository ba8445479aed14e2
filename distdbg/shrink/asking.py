"""Give the child process its tasks and take its answers; its errors are raised here.

Torch and transformers take seconds to load: one child does all the tasks of a command. It ends with this process,
however that ends: its standard input closes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from distdbg import errors

_CHILD = Path(__file__).resolve().with_name("child.py")


def ask(task: str, **arguments: Any) -> Any:
    """The child's result. Raises what it raised; ToolMissing where torch or transformers are not installed."""
    child = _taken()
    try:
        child.send({"task": task, **arguments})
        found = child.answer()
    except BaseException:  # also an interruption: nobody waits for what it is at
        child.end()
        raise
    _idle.append(child)
    if "error" in found:
        kind = getattr(errors, found["error"]["class"], errors.DistdbgError)
        raise kind(found["error"]["message"], found["error"]["remedy"])
    return found["result"]


def tell(task: str, **arguments: Any) -> None:
    """Let the child begin with what a later question needs. Nobody waits for it, and what it raises is lost: the
    question raises it again."""
    child = _taken()
    child.send({"task": task, **arguments})
    _idle.append(child)


def _taken() -> _ProbeProcess:
    child = _idle.pop() if _idle else _ProbeProcess()
    if child.began != _surroundings():
        child.end()
        child = _ProbeProcess()
    return child


def dismiss() -> None:
    """Ends the child, if there is one: the next question starts another."""
    while _idle:
        _idle.pop().end()


class _ProbeProcess:
    def __init__(self) -> None:
        self.began = _surroundings()
        self._sent = 0
        answers, theirs = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the child lives
        self._folder = tempfile.TemporaryDirectory(prefix="distdbg-shrink-", ignore_cleanup_errors=True)
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(_CHILD), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=(theirs,),
                env={**os.environ, "TMPDIR": self._folder.name},  # an interrupted child removes nothing itself
            )
        except OSError as error:
            os.close(answers)
            raise errors.ToolMissing(f"the process that builds the model cannot be started: {error.strerror}",
                                     "See `ulimit -u`, the limit on processes.") from None  # fmt: skip
        finally:
            os.close(theirs)
        self._answers = os.fdopen(answers, "rb")
        atexit.register(self.end)

    def send(self, question: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        self._sent += 1

    def answer(self) -> dict[str, Any]:
        """To what was sent last. Raises DistdbgError where it ended over a question."""
        line = b""
        while self._sent:
            line = self._answers.readline()
            self._sent = self._sent - 1 if line else 0
        if not line:
            self._process.wait()
            self._said.seek(0)
            raise _why(self._process.returncode, self._said.read().decode(errors="replace"))
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._answers.close()
        self._said.close()
        with contextlib.suppress(BrokenPipeError):  # of a question that it did not take
            self._process.stdin.close()
        self._folder.cleanup()
        atexit.unregister(self.end)


#: at most one, between two questions
_idle: list[_ProbeProcess] = []


def _surroundings() -> tuple[str, dict[str, str]]:
    """What a new child would find: relative paths and settings mean something else where it is not the same."""
    return str(Path.cwd()), dict(os.environ)


def _why(code: int, said: str) -> errors.DistdbgError:
    last = next((line for line in reversed(said.splitlines()) if line.strip()), f"exit code {code}")
    if last.startswith(("ModuleNotFoundError", "ImportError")):
        return errors.ToolMissing(
            f"models cannot be built here: {last.partition(': ')[2]}",
            f"Run {errors.install_extra('shrink')}.",
        )
    if code < 0:
        return errors.DistdbgError(
            f"the process that builds the model was ended by signal {-code}",
            "Look for the kernel's OOM killer.",
        )
    return errors.DistdbgError(f"the process that builds the model failed: {last}", said[-2000:])
