"""Read what the frontend of torch.distributed.debug writes and answers: one text with the answers of all ranks.

=== Rank 0: http://node7:54343/handler/dump_traceback? ===
Current thread 0x00007f1146ffd6c0 (most recent call first):

The files of its `dump_dir` have this form (`stacks_20261128_105231.txt`, `pyspy_dump_…`). Its pages have the same in
HTML, which torch does not escape (torch/distributed/debug/_debug_handlers.py, _frontend.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distdbg.model import MOST_RANKS

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
