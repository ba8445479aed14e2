"""Put together what the logs of one job say of each rank and of processes without a rank, and what was read."""

from __future__ import annotations

import re
import signal
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from distdbg.evidence.exit_status import exit_status
from distdbg.evidence.logs.events import Event, events_in, missing_ranks
from distdbg.evidence.logs.exits import Exit
from distdbg.evidence.logs.kernel import killed_pid
from distdbg.evidence.logs.local_ranks import NodeRanks
from distdbg.evidence.logs.logged_values import LoggedValues, add_facts
from distdbg.evidence.logs.messages import OF_WATCHDOG
from distdbg.evidence.logs.nccl import all_of_nccl, read_nccl_log
from distdbg.evidence.logs.process import LoggedProcess
from distdbg.evidence.logs.rank_names import NameFacts
from distdbg.evidence.logs.sources import ParsedLine, Source, ranks_of_ray
from distdbg.evidence.logs.watchdog import speaks_of_watchdog
from distdbg.evidence.run import UNKNOWN_RANK, DecisiveLine, ExceptionFact, HostClock, LogsRead
from distdbg.findings.scheduler import OUTSIDE
from distdbg.model import Citation, Unknown

_MOST_TAIL = 64 << 10
#: A launcher ends the other processes with these after one has failed; a person or a terminal ends all.
_ORDERED = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
#: Exit codes of a process that may have been killed, as torchrun and as a shell or Kubernetes report them.
_KILLED = (None, -signal.SIGKILL, 128 + signal.SIGKILL)
#: Known message of the heartbeat monitor, which ends a process whose watchdog is stuck.
_WATCHDOG_STUCK = "nccl-watchdog-stuck"
#: Known messages that `nic-fault` reads from NCCL's own lines, from all of them together.
_OF_NIC = {"ib-completion", "ib-completion-other", "ib-async"}
#: Horovod's report of ranks that did not submit a tensor, and how many lines below it can name them.
_STALL, _STALL_LINES = "horovod-stall", 60
#: Lines of a message that is no traceback's end.
_MESSAGE_LINES = 8
_CHILD_FAILED = "elastic-child-failed"
#: Ray's report of a process that died, and how it gives its pid: in the line, or in one around it.
_WORKER_DIED, _DIED_LINES = "ray-worker-died", 8
_PID_OF_RAY = re.compile(r"(?:^\s*pid|\bWorker PID): (\d{1,10})\b")
_NODE = re.compile(r"\bNode failure on ([\w.-]+)")


@dataclass
class LogFile:
    """One log, parsed. `node` says which ranks its local ranks are."""

    path: str
    lines: list[ParsedLine]
    name: NameFacts
    exits: list[Exit] = field(default_factory=list)
    node: NodeRanks = field(default_factory=NodeRanks)
    sources: list[Source] = field(default_factory=list)
    times: list[tuple[int, float]] = field(default_factory=list)
    #: seconds by which each host's clock is ahead
    ahead: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def ray_workers(self) -> dict[tuple[str, int], int]:
        """Where this is what a driver of Ray Train printed: the ranks of its workers, by (host or "", pid)."""
        return ranks_of_ray(self.lines)

    def t_of(self, event_t: float | None, line: int, host: str) -> float | None:
        """By the clock that all hosts are compared with; of a line without a time, that of the line above that has
        one."""
        if event_t is None and not self.times:
            return None
        if event_t is None:
            at = bisect_right(self.times, (line, float("inf")))
            event_t = self.times[at - 1][1] if at else self.times[0][1]
        return event_t - self.ahead.get(host or self.name.host, 0.0)


@dataclass(frozen=True)
class JobLogs:
    """`ranks`: the processes by rank. `unattributed`: those whose rank is not known. `watchdogs`: (rank or None, path,
    lines) for the reader of watchdog lines."""

    ranks: dict[int, LoggedProcess]
    unattributed: list[LoggedProcess]
    hosts: list[str]
    read: LogsRead
    watchdogs: list[tuple[int | None, str, list[str]]]
    #: a watchdog ended a process
    timed_out: bool
    unknown: list[Unknown]


class Assembly:
    """Of the logs of one job; `job` is called once."""

    def __init__(self, files: Sequence[LogFile], clocks: tuple[HostClock, ...]) -> None:
        self._files, self._clocks = files, clocks
        self._timed = any(file.times for file in files)
        self._ranks: dict[int, LoggedProcess] = {}
        self._unattributed: list[LoggedProcess] = []
        #: those of them that are Ray's own
        self._controllers: list[LoggedProcess] = []
        #: what launchers and schedulers say of the job, by the host that they speak of
        self._launchers: dict[str, LoggedProcess] = {}
        self._timed_out = False
        self._logged: list[LoggedValues] = []
        self._decisive: list[DecisiveLine] = []
        self._watchdogs: list[tuple[int | None, str, list[str]]] = []

    @property
    def _processes(self) -> list[LoggedProcess]:
        return [*self._ranks.values(), *self._unattributed]

    def job(self, lines: int, size: int, forms: set[str], unknown: list[Unknown]) -> JobLogs:
        for file in self._files:
            self._exits(file)
            last_end = max((one.line for one in file.exits if one.code), default=0)
            for source in file.sources:
                self._source(file, source, last_end)
        add_facts(self._logged)
        if any(process.exceptions for process in self._ranks.values()):
            self._unattributed = [process for process in self._unattributed if process not in self._controllers]
        self._give_to_only_failed()
        self._give_to_killed()
        self._unattributed = [process for process in self._unattributed if not process.says_nothing]
        self._mark_stopped()
        hosts = sorted({process.host for process in self._processes if process.host})
        return JobLogs(
            self._ranks, [*self._launchers.values(), *self._unattributed], hosts, self._read(lines, size, forms, hosts),
            self._watchdogs, self._timed_out, [*unknown, *self._unexplained()],
        )  # fmt: skip

    # -- one source ------------------------------------------------------------------------------------------

    def _source(self, file: LogFile, source: Source, last_end: int) -> None:
        if speaks_of_watchdog(source.text):
            self._watchdogs.append((source.rank, file.path, [line.text for line in source.lines]))
        events = [event for event in events_in(source, last_end) if not self._given_to_others(file, source, event)]
        self._logged.append(values := LoggedValues(source.lines, file.path))
        if source.rank is not None:
            process = self._of_rank(source.rank)
        elif events or values.lasting or _complains(source):
            process = self._of_unknown(source.host, source.pod, source.pid, source.local_rank)
            self._controllers += [process] if source.controls else []
        else:
            return
        _add_texts(process, file, source)
        values.process = process
        for event in events:
            if event.child is None or source.rank is not None:
                rank = _writer_of(source, event)
                writer = process if rank is None else self._of_rank(rank)
                writer.exceptions.append(self._fact(file, source, event, rank))
            else:
                self._of_child(file, source, event, event.child)

    def _given_to_others(self, file: LogFile, source: Source, event: Event) -> bool:
        """False where it is an error of the process that wrote it; else it is noted for whom it is about."""
        known = event.known
        if known is None:
            return False
        if known.id in OF_WATCHDOG:
            self._watched(source)
        elif known.id == _WATCHDOG_STUCK:
            return self._is_watched(source)
        elif known.finding in OUTSIDE:
            if known.id != _CHILD_FAILED or not file.exits:  # its table says more
                self._of_launcher(file, source, event)
        elif known.id == _STALL:
            self._of_missing(file, source, event)
        elif known.id == _WORKER_DIED:
            return self._of_dead_worker(file, source, event)
        else:
            return known.id in _OF_NIC and _complains(source)
        return True

    def _watched(self, source: Source) -> None:
        """NCCL's watchdog ended it: which rank was missing, other lines say, or none."""
        self._timed_out = True
        if source.rank is not None:
            self._of_rank(source.rank).ended_by_watchdog = True

    def _is_watched(self, source: Source) -> bool:
        """Whether a collective of this process timed out before: the watchdog that then aborts NCCL may get stuck."""
        return self._of_rank(source.rank).ended_by_watchdog if source.rank is not None else self._timed_out

    def _of_launcher(self, file: LogFile, source: Source, event: Event) -> None:
        """What a scheduler or a launcher says of the job is no process's own error."""
        failed = _NODE.search(event.message)
        host = failed[1] if failed else source.host or source.pod
        process = self._launchers.setdefault(host, LoggedProcess.of_unknown_rank(host))
        process.exceptions.append(self._fact(file, source, event, source.rank))

    def _of_missing(self, file: LogFile, source: Source, event: Event) -> None:
        """Horovod's rank 0 says which ranks the others wait for: it is their failure, and not its own."""
        fact = self._fact(file, source, event, source.rank)
        missing = missing_ranks([line.text for line in source.lines[event.at : event.at + _STALL_LINES]])
        for process in [self._of_rank(rank) for rank in missing] or [self._of_unknown()]:
            process.exceptions.append(replace(fact, rank=process.rank))

    def _of_dead_worker(self, file: LogFile, source: Source, event: Event) -> bool:
        """Ray's driver says it of a worker whose pid it has listed with a rank. False where it says no such pid."""
        around = source.lines[max(0, event.at - _DIED_LINES) : event.at + _DIED_LINES]
        near = sorted(around, key=lambda line: abs(line.number - source.lines[event.at].number))
        lines = [*event.text.splitlines(), *(line.text for line in near)]
        said = [found[1] for line in lines if (found := _PID_OF_RAY.search(line))]
        rank = file.ray_workers.get(("", int(said[0]))) if said else None
        if rank is None:
            return False
        if not (process := self._of_rank(rank)).exceptions:
            process.exceptions.append(self._fact(file, source, event, rank))
        return True

    def _of_child(self, file: LogFile, source: Source, event: Event, child: int) -> None:
        """torch.multiprocessing.spawn's parent prints the traceback of process N of this host."""
        rank = file.node.rank(child, source.host)
        process = self._of_unknown(source.host, source.pod, local_rank=child) if rank is None else self._of_rank(rank)
        process.exceptions.append(self._fact(file, source, event, rank))

    def _of_rank(self, rank: int) -> LoggedProcess:
        return self._ranks.setdefault(rank, LoggedProcess(rank))

    def _of_unknown(
        self, host: str = "", pod: str = "", pid: int | None = None, local_rank: int | None = None
    ) -> LoggedProcess:
        for process in self._unattributed:
            if (process.host, process.pid, process.local_rank or 0) == (host or pod, pid, local_rank or 0):
                return process
        self._unattributed.append(LoggedProcess.of_unknown_rank(host, pod, pid, local_rank))
        return self._unattributed[-1]

    def _fact(self, file: LogFile, source: Source, event: Event, rank: int | None) -> ExceptionFact:
        host = source.host or source.pod
        t = self._order(file, event.t, event.line, host)
        self._decisive.append(
            DecisiveLine(file.path, event.line, rank, host, file.t_of(event.t, event.line, host), _shown(event))
        )
        return ExceptionFact(
            rank=UNKNOWN_RANK if rank is None else rank,
            type=event.type,
            message=event.message,
            traceback=event.text,
            t=t,
            uncaught=True,
            where=event.where,
            citation=Citation(file.path, event.line, quote=event.text),
        )

    def _order(self, file: LogFile, t: float | None, line: int, host: str) -> float:
        """What orders events: the time, and within one time the line; the line alone where one log has no times."""
        if (known := file.t_of(t, line, host)) is not None:
            return known + line * 1e-9
        return line * 1e-6 if len(self._files) == 1 and not self._timed else 0.0

    # -- ends of processes -----------------------------------------------------------------------------------

    def _exits(self, file: LogFile) -> None:
        torchrun = any(one.by == "torchrun" for one in file.exits)
        tasks_are_ranks = not torchrun and all(line.facts.local_rank is None for line in file.lines)
        in_table = {one.pid for one in file.exits if one.rank is not None and one.pid is not None}
        for one in file.exits:
            only_local = one.rank is None and one.local_rank is not None
            if one.code == 0 or (only_local and in_table and one.pid in {None, *in_table}):
                continue
            ranks = (one.rank,) if one.rank is not None else one.tasks if tasks_are_ranks else ()
            if not ranks and one.local_rank is not None:
                rank = file.node.rank(one.local_rank, one.host)
                ranks = (rank,) if rank is not None else ()
            for rank in ranks:
                self._ended(self._of_rank(rank), file, one)
            if not ranks and (one.code < 0 or one.memory):
                self._ended(self._of_unknown(one.host or file.name.host, "", one.pid, one.local_rank), file, one)

    def _ended(self, process: LoggedProcess, file: LogFile, one: Exit) -> None:
        if process.exit_citation is not None:
            return
        citation = Citation(file.path, one.line, quote=one.text)
        process.exit_code = exit_status({"exit_code": one.code})
        process.exit_path, process.exit_citation = file.path, citation
        process.ended = file.t_of(one.t, one.line, one.host)
        process.host = one.host or process.host
        process.pid = one.pid or process.pid
        process.local_rank = one.local_rank or process.local_rank
        self._decisive.append(
            DecisiveLine(file.path, one.line, one.rank, one.host, process.ended, one.text.split("\n")[0])
        )
        if one.memory:
            t = self._order(file, one.t, one.line, one.host)
            process.exceptions.append(
                ExceptionFact(process.rank, "", one.text, one.text, t, uncaught=True, citation=citation)
            )

    def _give_to_only_failed(self) -> None:
        """Errors of an unknown process are those of the only one that failed, where that one said nothing else."""
        failed = [process for process in self._processes if process.exit_code]
        if len(failed) != 1 or failed[0].exceptions or len(self._files) != 1:
            return
        only = failed[0]
        said = [process for process in self._unattributed if not process.exit_code and process.host in ("", only.host)]
        if len(said) != 1 or said[0].local_rank not in (None, only.local_rank):
            return
        self._unattributed.remove(said[0])
        only.exceptions = said[0].exceptions
        if not only.stderr_tail:
            only.stderr_tail, only.stderr_path = said[0].stderr_tail, said[0].stderr_path
            only.stderr_first_line = said[0].stderr_first_line
        if only.nccl is None:
            only.nccl, only.nccl_tail, only.nccl_path = said[0].nccl, said[0].nccl_tail, said[0].nccl_path

    def _give_to_killed(self) -> None:
        """Give memory kills to the process whose pid the kernel names, if it may have been killed."""
        killed = (p for p in self._ranks.values() if p.pid is not None and p.exit_code in _KILLED)
        by_pid: dict[int | None, LoggedProcess] = {process.pid: process for process in killed}
        for process in self._unattributed:
            kept: list[ExceptionFact] = []
            for fact in process.exceptions:
                owner = by_pid.get(killed_pid(fact.message))
                (owner.exceptions if owner is not None else kept).append(fact)
            process.exceptions = kept

    def _mark_stopped(self) -> None:
        """A rank that SIGTERM ended while another shows an error of its own was ended for that."""
        if not self._launchers and not any(
            process.exceptions or (process.exit_code or 0) not in (0, *_ORDERED) for process in self._processes
        ):
            return
        for process in self._processes:
            if process.exit_code in _ORDERED:
                process.asked_to_stop = process.ended or 0.0

    def _unexplained(self) -> Iterator[Unknown]:
        """Processes that ended badly, and no line says why."""
        if self._timed_out or self._launchers or any(process.exceptions for process in self._processes):
            return
        for file in self._files:
            for one in file.exits:
                if one.code > 0 and (not one.first or one.by):
                    who = f"rank {one.rank}" if one.rank is not None else f"a process of {one.host or file.path}"
                    yield Unknown(
                        f"why {who} ended with exit code {one.code}",
                        f"line {one.line} of {file.path} says that it did, and no line shows its error: collect the "
                        "standard error of each rank (torchrun --log-dir LOGS --redirects 3, srun --label)",
                        decisive=True,
                    )
                    return
        if all(process.says_nothing for process in self._processes) and not self._watchdogs:
            because = "no line shows a sign of a failure, and none says how the job ended, so its outcome is unknown"
            yield Unknown("whether and why the job failed", because, decisive=True)

    # -- what was read ---------------------------------------------------------------------------------------

    def _read(self, lines: int, size: int, forms: set[str], hosts: list[str]) -> LogsRead:
        times = [t for file in self._files for _, t in file.times]
        launchers = {name for file in self._files for line in file.lines for name in line.facts.launchers}
        launchers |= {one.by for file in self._files for one in file.exits}
        seen = {line.facts.host for file in self._files for line in file.lines} - {""}
        return LogsRead(
            files=len(self._files), lines=lines, size=size,
            first=min(times, default=None), last=max(times, default=None),
            ranks=tuple(sorted(self._ranks)), hosts=tuple(sorted({*hosts, *seen})),
            launchers=tuple(sorted(launchers - {""})), forms=tuple(sorted(forms)),
            unattributed=sum(len(process.exceptions) for process in self._unattributed),
            clocks=self._clocks,
            decisive=tuple(sorted(self._decisive, key=lambda d: (d.t if d.t is not None else 0.0, d.path, d.line))),
        )  # fmt: skip


def _writer_of(source: Source, event: Event) -> int | None:
    """The rank of the source, or the one that the message gives as that of its writer."""
    if source.rank is not None or event.known is None:
        return source.rank
    return event.known.reporter_in("\n".join(line.text for line in source.lines[event.at : event.at + _MESSAGE_LINES]))


def _complains(source: Source) -> bool:
    """NCCL names a fault of a network card, which a rule reads from NCCL's own lines."""
    text = source.text
    return "NCCL WARN" in text and (nccl := read_nccl_log(text, 0)) is not None and bool(nccl.faults)


def _add_texts(process: LoggedProcess, file: LogFile, source: Source) -> None:
    text, first, last = source.text, source.lines[0].number, source.lines[-1].number
    if last - first != len(source.lines) - 1:
        first = 0  # others' lines stand between
    process.host = process.host or source.host
    process.local_rank = source.local_rank if process.local_rank is None else process.local_rank
    if not all_of_nccl(text) and not process.stderr_tail:
        process.stderr_tail, process.stderr_path = text[-_MOST_TAIL:], file.path
        process.stderr_first_line = first if len(text) <= _MOST_TAIL else 0
    if "NCCL WARN" in text:
        process.nccl_tail, process.nccl_path = text[-_MOST_TAIL:], file.path
    if " NCCL " in text and (nccl := read_nccl_log(text, first)) is not None:
        process.nccl, process.nccl_path = nccl, file.path
        process.host = process.host or nccl.host


def _shown(event: Event) -> str:
    first = event.message.split("\n", 1)[0]
    return f"{event.type}: {first}".strip(": ") if event.type else first
