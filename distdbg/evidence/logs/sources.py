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
from distdbg.evidence.logs.unknown_prefixes import unknown_forms, without
from distdbg.evidence.stacks.tracebacks import HEADER

#: By them a task of Slurm or MPI is a node's torchrun and no rank.
_TORCHRUN = re.compile(
    r"torch[./]distributed[./](?:run|launch|elastic)|"
    r"\btorchrun\b|ChildFailedError|elastic/agent/server|accelerate launch"
)
#: How the controller of Ray Train lists its workers.
_RAY_WORKER = re.compile(r"\(ip=(?P<host>[^,)]{1,100}), pid=(?P<pid>\d{1,10})\) world_rank=(?P<rank>\d{1,7})\b")
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
    stripped = [(number, *strip(piece)) for number, piece in _pieces(raw)]
    forms = unknown_forms(text for _, text, _ in stripped)
    found: list[ParsedLine] = []
    for number, with_prefix, known in stripped:
        text, facts = without(with_prefix, known, forms)
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
