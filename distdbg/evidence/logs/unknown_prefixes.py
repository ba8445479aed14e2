"""Learn prefixes that no row of the table knows, from what must stand at the beginning of a line.

Python prints `Traceback (most recent call last):` at the beginning of a line. What stands before it, in a log, was
written by a logger or a launcher, and stands before the lines that follow as well: with other digits. Such a prefix is
removed from all lines of the log that have it, and a rank that it names is taken; a name alone is that of a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from distdbg.evidence.logs.prefixes import LineFacts
from distdbg.evidence.stacks.tracebacks import HEADER
from distdbg.model import MOST_RANKS

_LONGEST, _MOST_FORMS = 160, 20
_DIGITS = re.compile(r"\d+")
_RANK = re.compile(r"(?:\b([A-Za-z]+)[ ._-])?(?<![A-Za-z_])rank[\"']?[ :=_#]{0,3}(\d{1,7})\b", re.IGNORECASE)
#: whose rank it is, where not that of the job
_OF_A_PART = {
    "local", "node", "group", "machine", "tp", "pp", "dp", "cp", "ep", "sp", "mp", "tensor", "pipeline", "data",
    "expert", "context", "sequence", "model", "stage", "replica", "sub", "shard",
}  # fmt: skip
_HOST = re.compile(r"([A-Za-z][\w.-]{0,100}): $")
_PID = re.compile(r"\bpid[\"']?[ :=_#]{0,2}(\d{1,9})\b", re.IGNORECASE)


def unknown_forms(texts: Iterable[str]) -> list[re.Pattern[str]]:
    """Of the lines of one log: a pattern for each prefix that stood before a traceback and before the line below it."""
    found: dict[str, re.Pattern[str]] = {}
    expected: list[re.Pattern[str]] = []
    for text in texts:
        for form in expected:
            if form.match(text):
                found.setdefault(form.pattern, form)
        expected = [_form(text[:at])] if 0 < (at := text.find(HEADER)) <= _LONGEST and text[:at].strip() else []
        if len(found) >= _MOST_FORMS:
            break
    return list(found.values())


def _form(prefix: str) -> re.Pattern[str]:
    """The same with other digits."""
    return re.compile(r"\d+".join(re.escape(piece) for piece in _DIGITS.split(prefix)))


def without(text: str, facts: LineFacts, forms: Iterable[re.Pattern[str]]) -> tuple[str, LineFacts]:
    """The line without a prefix of these forms; a traceback's head without anything before it."""
    end = next((match.end() for form in forms if (match := form.match(text))), 0)
    if not end and 0 < (at := text.find(HEADER)) <= _LONGEST and not text[:at].isspace():
        end = at
    return (text[end:], _with_facts(facts, text[:end])) if end else (text, facts)


def _with_facts(facts: LineFacts, prefix: str) -> LineFacts:
    rank, pid, host = _rank(prefix), _PID.search(prefix), _HOST.match(prefix)
    return replace(
        facts,
        host=host[1] if not facts.host and host is not None and rank is None else facts.host,
        rank=rank if facts.rank is None else facts.rank,
        pid=int(pid[1]) if facts.pid is None and pid is not None else facts.pid,
    )


def _rank(prefix: str) -> int | None:
    said = [int(found[2]) for found in _RANK.finditer(prefix) if (found[1] or "").lower() not in _OF_A_PART]
    return said[0] if len(said) == 1 and said[0] < MOST_RANKS else None
