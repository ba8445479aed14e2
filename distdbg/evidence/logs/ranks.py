"""Logs that torchrun and its ranks left: whose lines are whose, tracebacks, and torchrun's closing table.

torch marks what a rank's own excepthook prints with `[rank3]: `, torchrun's --tee every line with `[name3]:`. A
closing table names exit codes and pids of those that failed. NCCL says its rank where it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from distdbg.evidence.exit_status import exit_status, implausible
from distdbg.evidence.logs.nccl import rank_in_nccl_log, read_nccl_log
from distdbg.evidence.logs.tail import Tail
from distdbg.evidence.run import ExceptionFact
from distdbg.evidence.stacks.tracebacks import last_chain
from distdbg.model import MOST_RANKS, Citation, Unknown

_MARKED = re.compile(r"^\[rank(\d{1,7})\]: ?")
_TEED = re.compile(r"^\[[A-Za-z_]\w*?(\d{1,7})\]:(?!\[)")
_FAILURE = re.compile(
    r"time\s*: (?P<time>\S+)\s*\n\s*host\s*: (?P<host>\S+)\s*\n"
    r"\s*rank\s*: (?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,7})\)\s*\n"
    r"\s*exitcode\s*: (?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"
)
_TRACEBACK = "Traceback (most recent call last):"
_NCCL = " NCCL "
_LOG = re.compile(
    r"Traceback \(most recent call last\):|torch\.distributed|torch/distributed|^\[rank\d+\]|NCCL (?:INFO|WARN)|"
    r"ChildFailedError|Fatal Python error|ProcessGroupNCCL\.cpp|Watchdog caught collective operation timeout",
    re.MULTILINE,
)
_MOST_TAIL = 64 << 10


@dataclass(frozen=True)
class LogFound:
    """What one log tells. `ranks` are fields of RankRecord, by rank."""

    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    unknown: tuple[Unknown, ...] = ()


def is_log(text: str) -> bool:
    return _LOG.search(text) is not None


def read_log(tail: Tail, path: str, rank: int | None) -> LogFound:
    """`rank` is the rank that wrote the log, None for the log of several ranks."""
    failed = {int(f["rank"]): f for f in _FAILURE.finditer(tail.text) if int(f["rank"]) <= MOST_RANKS}
    found: dict[int, dict[str, Any]] = {number: _failure(match) for number, match in failed.items()}
    texts = dict(_by_rank(tail))
    raised = _TRACEBACK in tail.text
    if not texts and (raised or _NCCL in tail.text):
        owner = rank if rank is not None else next(iter(failed)) if raised and len(failed) == 1 else None
        owner = rank_in_nccl_log(tail.text) if owner is None else owner
        if owner is None:
            what = f"the rank of the {'traceback' if raised else 'NCCL output'} in {path}"
            return LogFound(found, (Unknown(what, "neither its lines nor its name contain a rank"),))
        texts = {owner: tail}
    elif rank is not None:
        texts.setdefault(rank, tail)
    for number, own in texts.items():
        fields = found.setdefault(number, {})
        if not _all_of_nccl(own.text):
            fields |= {"stderr_tail": own.text[-_MOST_TAIL:], "stderr_path": path, "stderr_first_line": own.first_line}
        if "NCCL WARN" in own.text:
            fields |= {"nccl_tail": own.text[-_MOST_TAIL:], "nccl_path": path}
        if (nccl := read_nccl_log(own.text, own.first_line or 1)) is not None:
            fields |= {"nccl": nccl, "nccl_path": path}
            if nccl.host:
                fields.setdefault("host", nccl.host)
        if len(own.text) > _MOST_TAIL:
            fields["stderr_first_line"] = 0
        if "exit_code" not in fields:
            fields["exceptions"] = tuple(_exceptions(number, own, path))
            fields["exit_unknown_because"] = "its log does not tell"
    return LogFound(found)


def _all_of_nccl(text: str) -> bool:
    """As NCCL_DEBUG_FILE has it: what the rank itself printed is elsewhere."""
    return all(_NCCL in line or line.startswith("NCCL version") for line in text.split("\n") if line.strip())


def _failure(match: re.Match[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"host": match["host"], "local_rank": int(match["local"]), "pid": int(match["pid"])}
    told = {"exit_code": int(match["code"])}
    fields["exit_code"], fields["exit_unknown_because"] = exit_status(told), implausible(told)
    try:
        fields["ended"] = datetime.strptime(match["time"], "%Y-%m-%d_%H:%M:%S").timestamp()
    except ValueError:
        fields["ended"] = 0.0
    return fields


def _by_rank(tail: Tail) -> Iterator[tuple[int, Tail]]:
    """Lines that bear a rank, by rank; the line number is known where they stand together."""
    lines: dict[int, list[str]] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    together: dict[int, bool] = {}
    for at, line in enumerate(tail.text.split("\n")):
        if not (found := _MARKED.match(line) or _TEED.match(line)):
            continue
        rank = int(found[1])
        together[rank] = together.get(rank, True) and last.get(rank, at - 1) == at - 1
        first.setdefault(rank, at)
        last[rank] = at
        lines.setdefault(rank, []).append(line if found.re is _MARKED else line[found.end() :])
    for rank, own in lines.items():
        known = together[rank] and tail.first_line
        yield rank, Tail("\n".join(own), tail.first_line + first[rank] if known else 0)


def _exceptions(rank: int, own: Tail, path: str) -> Iterator[ExceptionFact]:
    """The one that ended the script: its log has no exit code to go by."""
    chain = last_chain(own.text)
    if chain:
        error = chain[-1]
        line = own.first_line + error.line if own.first_line else None
        where = error.where
        yield ExceptionFact(
            rank=rank,
            type=error.type,
            message=error.message,
            traceback=error.text,
            t=0.0,
            uncaught=True,
            where=(where.file, where.line, where.function) if where else None,
            citation=Citation(path, line, quote=error.text),
        )
