"""Recognise text with the stacks of one process, and choose its reader: py-spy's, gdb's or faulthandler's.

What `py-spy dump` prints is read here into the form of its JSON, for evidence/stacks/threads.py:

Process 123: python train.py
Thread 123 (idle): "MainThread"
    step (train.py:88)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.stacks.crash import is_faulthandler_text, read_faulthandler_text
from distdbg.evidence.stacks.gdb_text import is_gdb_text, read_gdb_text
from distdbg.evidence.stacks.threads import MOST_FRAMES
from distdbg.model import MOST_RANKS
from distdbg.plain_text import whole_number

StackReader = Callable[[Iterable[str]], Iterable[dict[str, Any]]]


_PROCESS = re.compile(r"^Process (\d{1,9}): ")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]{1,16}|\d{1,19}) \(([\w+]+)\)(?:: "(.*)")?$')
_FRAME = re.compile(r"^ {4}(\S.*?) \((.*?)(?::(\d{1,9}))?\)$")


def is_pyspy_text(text: str) -> bool:
    lines = text.lstrip("\ufeff\n ").split("\n", 200)
    return bool(lines) and bool(_PROCESS.match(lines[0])) and any(_THREAD.match(line) for line in lines[1:])


def read_pyspy_text(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One object a thread, as py-spy's JSON has them.

    Lines of another form are no loss: py-spy prints the Python version, blank lines and, on request, variables.
    """
    thread: dict[str, Any] | None = None
    pid = 0
    for line in lines:
        if found := _PROCESS.match(line):
            pid = int(found[1])
        elif found := _THREAD.match(line):
            if thread is not None:
                yield thread
            thread = _thread(pid, found[1], found[2], found[3])
        elif thread is not None and len(thread["frames"]) < MOST_FRAMES and (found := _FRAME.match(line)):
            frame = {"name": found[1], "filename": found[2], "line": int(found[3] or 0)}
            thread["frames"].append(frame)
    if thread is not None:
        yield thread


def _thread(pid: int, number: str, state: str, name: str | None) -> dict[str, Any]:
    os_id = whole_number(number) or 0
    words = state.split("+")
    return {
        "pid": pid,
        "os_thread_id": os_id if os_id < 2**31 else 0,
        "thread_name": name,
        "active": "active" in words,
        "owns_gil": "gil" in words,
        "frames": [],
    }


def stack_reader(head: str) -> StackReader | None:
    """The reader of a text that begins with `head`; None if these are not stacks. It yields py-spy's objects."""
    if is_pyspy_text(head):
        return read_pyspy_text
    if is_gdb_text(head):
        return read_gdb_text
    return read_faulthandler_text if is_faulthandler_text(head) else None


#: What the frontend of torch.distributed.debug writes and answers: one text with the answers of all ranks. Its files
#: (`dump_dir`) have the first form; its pages have the second, unescaped (_debug_handlers.py, _frontend.py).
_HEADING = re.compile(r"^(?:=== | *<h2>)Rank (\d{1,7}): http\S{1,300}/handler/\w{1,80}\S{0,300}?(?: ===|</h2>)$")
#: The whole answer in a file; in a page the server's message follows.
_FAILED = re.compile(r"^(?:Error: (?P<status>\d{3})| *<p>Failed to fetch: status=(?P<html_status>\d{3})</p>)$")
_PRE = re.compile(r"^ *<pre>")
_END = "</pre>"


@dataclass
class RankAnswer:
    """The answer of one rank's worker server, or the HTTP status that it failed with."""

    rank: int
    lines: list[str] = field(default_factory=list)
    status: str = ""

    @property
    def failure(self) -> str:
        """Why the answer cannot be used; empty if its form decides."""
        if self.rank >= MOST_RANKS:
            return f"distdbg reads jobs of up to {MOST_RANKS:,} ranks"
        return f"the worker server answered with status {self.status}" if self.status else ""


def has_rank_answers(head: str) -> bool:
    return any(map(_HEADING.match, head.split("\n")))


def read_rank_answers(lines: Iterable[str]) -> Iterator[RankAnswer]:
    answer: RankAnswer | None = None
    is_open = True
    for line in lines:
        if heading := _HEADING.match(line):
            if answer is not None:
                yield answer
            answer, is_open = RankAnswer(int(heading[1])), True
        elif answer is None or not is_open:
            continue
        elif not answer.lines and (failed := _FAILED.match(line)):
            answer.status = failed["status"] or failed["html_status"]
        elif not answer.lines and not line.strip():
            continue
        else:
            text = line if answer.lines else _PRE.sub("", line)
            is_open = not text.endswith(_END)
            answer.lines.append(text.removesuffix(_END))
    if answer is not None:
        yield answer
