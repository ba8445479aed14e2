"""Whose line is whose: the kept lines of one log, without prefixes, as one text for each process that wrote them.

A rank is only said where the text says it: by `[rank3]:`, by a task's label where no torchrun stands between, by a
local rank where the job has one node. All else is a source whose rank is not known, with its host, pod or pid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from distdbg.evidence.logs.candidates import RawLine, is_progress
from distdbg.evidence.logs.nccl import process_in_nccl_line, rank_in_nccl_log
from distdbg.evidence.logs.prefixes import NO_FACTS, LineFacts, strip
from distdbg.evidence.logs.rank_names import NameFacts
from distdbg.evidence.stacks.tracebacks import HEADER
from distdbg.model import MOST_RANKS

#: By them a task of Slurm or MPI is a node's torchrun and no rank.
_TORCHRUN = re.compile(
    r"torch[./]distributed[./](?:run|launch|elastic)|"
    r"\btorchrun\b|ChildFailedError|elastic/agent/server|accelerate launch"
)
#: How the controller of Ray Train lists its workers.
_RAY_WORKER = re.compile(r"\(ip=(?P<host>[^,)]{1,100}), pid=(?P<pid>\d{1,10})\) world_rank=(?P<rank>\d{1,7})\b")
#: In front of a quoted line.
_QUOTE = re.compile(r"^[ \t]*[>|]+ ?")
_FRAME = re.compile(r'^\s*File "[^"]+", line \d+')
#: Of lines that bear a number: so many must go up by one for it to be a line's number, and no task's.
_COUNTING = 0.8
_LEAST_COUNTED = 5


@dataclass(frozen=True)
class SourceLine:
    """`number` is 1-based in the file, `t` epoch seconds or None."""

    number: int
    text: str
    t: float | None = None
    level: str = ""
    progress: bool = False


@dataclass
class Source:
    """What one process wrote into one log. `rank` is None where it is not known. `controls`: one of Ray Train that
    is none of its workers; it repeats their errors, or serves them."""

    rank: int | None
    local_rank: int | None
    host: str
    pod: str
    pid: int | None
    controls: bool = False
    lines: list[SourceLine] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


@dataclass(frozen=True)
class ParsedLine:
    number: int
    text: str
    facts: LineFacts


def starts_of(lines: Iterable[SourceLine] | Iterable[ParsedLine]) -> list[int]:
    """The positions at which they begin in their texts joined by newlines."""
    found, at = [], 0
    for line in lines:
        found.append(at)
        at += len(line.text) + 1
    return found


def parsed_lines(raw: Iterable[RawLine], local_rank: int | None = None) -> list[ParsedLine]:
    """Without prefixes. `local_rank` is that of lines that say none themselves.

    A line in which a progress bar returned to the margin, and a message of JSON that has a traceback in it, are several
    lines of the same number.
    """
    stripped = [(number, *strip(piece)) for number, piece in _without_quotes(list(_pieces(raw)))]
    forms = unknown_forms(text for _, text, _ in stripped)
    found: list[ParsedLine] = []
    for number, with_prefix, known in stripped:
        text, facts = strip_unknown_prefix(with_prefix, known, forms)
        if local_rank is not None and facts.local_rank is None:
            facts = replace(facts, local_rank=local_rank)
        found += (ParsedLine(number, _margined(part), facts) for part in text.split("\n"))
    return _without_line_numbers(found)


def _pieces(raw: Iterable[RawLine]) -> Iterator[tuple[int, str]]:
    for line in raw:
        if "\r" not in line.text:
            yield line.number, line.text
        else:
            yield from ((line.number, piece) for piece in line.text.split("\r") if piece)


def _without_quotes(pieces: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Without the `> ` or `| ` with which a mail or an issue quotes a text: every line that is not empty has one."""
    quoted = all(_QUOTE.match(text) or not text.strip() for _, text in pieces)
    return [(number, _QUOTE.sub("", text)) for number, text in pieces] if quoted else pieces


def _margined(text: str) -> str:
    """A frame of a traceback with the indentation that Python gives it, which a prefix may have taken."""
    return "  " + text.lstrip() if _FRAME.match(text) else text


def _without_line_numbers(lines: list[ParsedLine]) -> list[ParsedLine]:
    """`12: text` of an editor or grep is no task 12: such numbers count the lines."""
    numbers = [line.facts.task for line in lines if line.facts.task is not None and "srun" in line.facts.launchers]
    steps = sum(1 for one, next_ in pairwise(numbers) if next_ == one + 1)
    if len(numbers) < _LEAST_COUNTED or steps < _COUNTING * (len(numbers) - 1):
        return lines
    return [
        replace(line, facts=replace(line.facts, task=None, launchers=line.facts.launchers - {"srun"})) for line in lines
    ]


def sources_of(
    lines: Sequence[ParsedLine], name: NameFacts, of_local: Callable[[int, str], int | None]
) -> list[Source]:
    """`name` is what the file's name says. `of_local` gives the rank of a local rank on a host, where it is known."""
    tasks_are_ranks = _tasks_are_ranks(lines)
    of_nccl, of_ray = _ranks_of_nccl(lines), ranks_of_ray(lines)
    found: dict[tuple[object, ...], Source] = {}
    before = NO_FACTS
    last = -1
    for line in lines:
        facts = line.facts
        if _has_identity(facts):
            before, last = facts, line.number
        elif (
            before.level
            and line.number == last + 1
            and (line.text.startswith((HEADER, "  ")) or _is_inside(found, line))
        ):
            facts = before
            last = line.number
        where, pid = facts.host or name.host, facts.pid
        local = facts.local_rank
        own = facts.task if facts.rank is None and tasks_are_ranks else facts.rank
        if own is None and local is not None:
            own = of_local(local, where or facts.pod)
        if (nccl := process_in_nccl_line(line.text)) is not None:
            where, pid = facts.host or nccl[0], nccl[1]
            own = own if own is not None else of_nccl.get(nccl)
        if own is None and pid is not None:
            own = of_ray.get((where, pid), of_ray.get(("", pid)))
        own = name.rank if own is None and not of_ray else own  # a driver's log has lines of all
        key = (own,) if own is not None else (None, local, where, facts.pod, pid)
        source = found.get(key)
        if source is None:
            source = found[key] = Source(own, local, where, facts.pod, pid)
        source.host, source.pod = source.host or where, source.pod or facts.pod
        source.local_rank = source.local_rank if source.local_rank is not None else local
        source.controls |= bool(of_ray) and own is None and pid is not None
        source.lines.append(SourceLine(line.number, line.text, facts.t, facts.level, progress=is_progress(line.text)))
    return list(found.values())


def _has_identity(facts: LineFacts) -> bool:
    return bool(facts.host or facts.pod) or not (
        facts.rank is None and facts.local_rank is None and facts.task is None and facts.pid is None
    )


def _is_inside(found: dict[tuple[object, ...], Source], line: ParsedLine) -> bool:
    """The last line of a traceback whose head was below a logger's line."""
    return any(
        source.lines and source.lines[-1].number == line.number - 1 and source.lines[-1].text.startswith("  ")
        for source in found.values()
        if source.rank is not None
    )


def _tasks_are_ranks(lines: Sequence[ParsedLine]) -> bool:
    """A task is a rank unless torchrun stands between, or a line says another rank than its task."""
    both = [(line.facts.task, line.facts.rank) for line in lines if None not in (line.facts.task, line.facts.rank)]
    if both:
        return all(task == rank for task, rank in both) and len({task for task, _ in both}) > 1
    local = any(line.facts.local_rank is not None for line in lines)
    return not local and not any(_TORCHRUN.search(line.text) for line in lines)


def _ranks_of_nccl(lines: Sequence[ParsedLine]) -> dict[tuple[str, int], int]:
    """The rank of each process, (host, pid), where all that NCCL says of it names the same one."""
    texts: dict[tuple[str, int], list[str]] = {}
    for line in lines:
        if "nranks" in line.text and (process := process_in_nccl_line(line.text)) is not None:
            texts.setdefault(process, []).append(line.text)
    ranks = {process: rank_in_nccl_log("\n".join(said)) for process, said in texts.items()}
    return {process: rank for process, rank in ranks.items() if rank is not None}


def ranks_of_ray(lines: Sequence[ParsedLine]) -> dict[tuple[str, int], int]:
    """The rank of each worker, (host, pid); ("", pid), too, where one host has that pid: lines of the driver's own host
    name none. Of a job that was started again the newest list counts."""
    workers = [found for line in lines if "world_rank=" in line.text for found in _RAY_WORKER.finditer(line.text)]
    ranks = {(found["host"], int(found["pid"])): int(found["rank"]) for found in workers}
    hosts = Counter(pid for _, pid in ranks)
    return ranks | {("", pid): rank for (_, pid), rank in ranks.items() if hosts[pid] == 1}


# Prefixes that the table does not know are learned: Python prints `Traceback (most recent call last):` at the beginning
# of a line, so a logger or a launcher wrote what precedes it, and it precedes the following lines with other digits.

#: Characters of a learned prefix, and learned prefixes of one log.
_MAX_PREFIX_LENGTH, _MAX_PREFIX_FORMS = 160, 20
_DIGITS = re.compile(r"\d+")
_RANK = re.compile(r"(?:\b([A-Za-z]+)[ ._-])?(?<![A-Za-z_])rank[\"']?[ :=_#]{0,3}(\d{1,7})\b", re.IGNORECASE)
#: Words before `rank` that mean the rank in a part of the job.
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
        expected = (
            [_form(text[:at])] if 0 < (at := text.find(HEADER)) <= _MAX_PREFIX_LENGTH and text[:at].strip() else []
        )
        if len(found) >= _MAX_PREFIX_FORMS:
            break
    return list(found.values())


def _form(prefix: str) -> re.Pattern[str]:
    """The same with other digits."""
    return re.compile(r"\d+".join(re.escape(piece) for piece in _DIGITS.split(prefix)))


def strip_unknown_prefix(text: str, facts: LineFacts, forms: Iterable[re.Pattern[str]]) -> tuple[str, LineFacts]:
    """The line without a prefix of these forms; a traceback's head without anything before it."""
    end = next((match.end() for form in forms if (match := form.match(text))), 0)
    if not end and 0 < (at := text.find(HEADER)) <= _MAX_PREFIX_LENGTH and not text[:at].isspace():
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
