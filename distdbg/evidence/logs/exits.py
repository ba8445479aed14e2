"""How launchers and schedulers report the ends of processes: torchrun's table, srun, DeepSpeed, mpirun, Horovod."""

from __future__ import annotations

import re
import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from distdbg.evidence.logs.prefixes import epoch
from distdbg.evidence.logs.sources import ParsedLine, starts_of
from distdbg.model import MOST_RANKS, unfold_ranks

_WORDS = {
    "Killed": -signal.SIGKILL, "Terminated": -signal.SIGTERM, "Segmentation fault": -signal.SIGSEGV,
    "Aborted": -signal.SIGABRT, "Bus error": -signal.SIGBUS, "Floating point exception": -signal.SIGFPE,
    "Illegal instruction": -signal.SIGILL, "Hangup": -signal.SIGHUP, "Interrupt": -signal.SIGINT,
    "User defined signal 1": -signal.SIGUSR1, "User defined signal 2": -signal.SIGUSR2,
}  # fmt: skip
_TABLE = re.compile(
    r"^\s*time\s*: (?P<time>\S+)\s*\n\s*host\s*: (?P<host>\S+)\s*\n"
    r"\s*rank\s*: (?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,7})\)\s*\n"
    r"\s*exitcode\s*: (?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)",
    re.MULTILINE,
)
_ELASTIC = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local_rank>\d{1,7}) \(pid:\s*(?P<pid>\d{1,9})?"
)
_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.-]+): tasks? (?P<tasks>[\d,-]{1,4000}): (?:Exited with exit code (?P<code>\d{1,3})|"
    rf"(?P<words>{'|'.join(_WORDS)})|(?P<memory>Out Of Memory))"
)
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,9}) "
    r"on node (?P<host>[\w.-]+) exited on signal (?P<signal>\d{1,2})"
)
_MPI_CODE = re.compile(r"Process name: \[\[\d{1,9},\d{1,9}\],(?P<rank>\d{1,7})\]\s*\n\s*Exit code:\s+(?P<code>\d{1,3})")
_HOROVOD = re.compile(r"\bProcess (?P<rank>\d{1,7}) exit with status code (?P<code>\d{1,3})")
_DEEPSPEED = re.compile(r"\] exits with return code = (?P<code>-?\d{1,3})\b")
_SPAWNED = re.compile(
    r"ProcessExitedException: process (?P<index>\d{1,6}) terminated with "
    r"(?:signal (?P<name>SIG\w{2,10})|exit code (?P<code>\d{1,3}))"
)
_MEMBERS = 4096


@dataclass(frozen=True)
class Exit:
    """One process's end by its launcher. `code` is negative for a signal. `rank` is None where it names none; `tasks`
    are Slurm's. `first` where torchrun says that it failed first. `line` is 1-based in the file."""

    line: int
    text: str
    code: int
    rank: int | None = None
    local_rank: int | None = None
    tasks: tuple[int, ...] = ()
    host: str = ""
    pid: int | None = None
    t: float | None = None
    by: str = ""
    first: bool = False
    memory: bool = False


def exits_in(lines: Sequence[ParsedLine]) -> list[Exit]:
    """All that the lines of one log report, in their order."""
    text = "\n".join(line.text for line in lines)
    found: list[Exit] = []
    for pattern, made in _FORMS:
        if pattern is _TABLE and "local_rank:" not in text:
            continue
        starts = None
        for match in pattern.finditer(text):
            starts = starts or starts_of(lines)
            begin = match.start() + len(match[0]) - len(match[0].lstrip())
            line = lines[bisect_right(starts, begin) - 1]
            found += made(match, line)
    root = next((line.number for line in lines if line.text.startswith("Root Cause (first observed failure)")), None)
    marked = [_first(one, root) for one in found]
    return sorted(marked, key=lambda one: one.line)


def _first(one: Exit, root: int | None) -> Exit:
    return replace(one, first=True) if one.by == "torchrun" and root is not None and 0 < one.line - root < 4 else one


def _of_table(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    if int(match["rank"]) < MOST_RANKS:
        yield Exit(line.number, match[0].strip(), int(match["code"]), int(match["rank"]), int(match["local_rank"]),
                   host=match["host"], pid=int(match["pid"]), t=epoch(match["time"]), by="torchrun")  # fmt: skip


def _of_elastic(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    yield Exit(line.number, line.text, int(match["code"]), None, int(match["local_rank"]), host=line.facts.host,
               pid=int(match["pid"]) if match["pid"] else None, t=line.facts.t, by="torchrun")  # fmt: skip


def _of_srun(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    code = int(match["code"]) if match["code"] else _WORDS.get(match["words"] or "", -signal.SIGKILL)
    try:
        tasks = unfold_ranks(match["tasks"])[:_MEMBERS]
    except ValueError:
        return
    yield Exit(line.number, line.text, code, tasks=tasks, host=match["host"], t=line.facts.t, by="srun",
               memory=match["memory"] is not None)  # fmt: skip


def _of_mpi(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    groups = match.groupdict()
    code = -int(groups["signal"]) if groups.get("signal") else int(groups.get("code") or 0)
    pid = int(groups["pid"]) if groups.get("pid") else None
    if int(match["rank"]) < MOST_RANKS and code:
        yield Exit(line.number, line.text, code, int(match["rank"]), host=groups.get("host") or "", pid=pid,
                   t=line.facts.t, by="mpirun")  # fmt: skip


def _of_deepspeed(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    if int(match["code"]):
        yield Exit(line.number, line.text, int(match["code"]), host=line.facts.host, t=line.facts.t, by="DeepSpeed")


def _of_spawn(match: re.Match[str], line: ParsedLine) -> Iterator[Exit]:
    """torch.multiprocessing.spawn numbers the processes of its host."""
    name = match["name"]
    code = -int(getattr(signal, name, 0)) if name else int(match["code"])
    if code:
        yield Exit(
            line.number, line.text, code, None, int(match["index"]), host=line.facts.host, t=line.facts.t, by="spawn"
        )


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], ParsedLine], Iterator[Exit]]], ...] = (
    (_TABLE, _of_table), (_ELASTIC, _of_elastic), (_SRUN, _of_srun), (_MPIRUN, _of_mpi), (_MPI_CODE, _of_mpi),
    (_HOROVOD, _of_mpi), (_DEEPSPEED, _of_deepspeed), (_SPAWNED, _of_spawn),
)  # fmt: skip
