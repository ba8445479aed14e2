"""One rank as its agent knows it: found below torchrun, watched by a pidfd, sampled from /proc and its page."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.launch.agent.timing import ArrivalDelay, PhaseWindows, StepTimer
from distdbg.protocol.page import PAGE_BYTES, Page, read_page

#: Given to each process that torchrun starts. RANK is taken away by programs that start ranks of their own.
RANK_VARIABLE = "DISTDBG_RANK"
#: Seconds. What torchrun runs for itself, as a look at the machine, is over by then.
_NAMELESS_S = 2.0
_CHILDREN_EVERY_S = 10.0
#: Children of children, too: a fork server may be between.
_MOST_CHILDREN = 128
_MOST_NAMED, _LEAST_NAMED = 8, 16 << 20
_TICK = os.sysconf("SC_CLK_TCK")
#: What `get_backend` says where a wait takes no CPU time. `undefined` is one backend for each kind of device.
_BLOCKING = {"gloo", "mpi", "fake", "cpu", "undefined"}
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class ChildMemory:
    """The memory of one rank's children: its loaders' workers, which the kernel may kill before the rank itself.

    Sampled every ten seconds, some 20 us a child and as much a thread of the rank. In metrics.jsonl the largest few are
    `"children": [[pid, bytes that are no file's and not shared, command], …]`.
    """

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._sizes: list[list[object]] = []

    def sizes(self, pid: int) -> list[list[object]]:
        """The largest children at the last look, which may be this one."""
        now = time.monotonic()
        if now - self._looked < _CHILDREN_EVERY_S:
            return self._sizes
        self._looked = now
        todo, found = procfs.children(pid), []
        for seen, child in enumerate(todo):
            if seen >= _MOST_CHILDREN:
                break
            if (size := procfs.anonymous_bytes(child)) is not None and size >= _LEAST_NAMED:
                found.append((size, child))
            todo += procfs.children(child)  # what is appended is looked at in its turn
        largest = sorted(found, reverse=True)[:_MOST_NAMED]
        self._sizes = [[child, size, procfs.command_name(child)] for size, child in largest]
        return self._sizes


@dataclass
class RankProcess:
    """What the agent knows of one rank in one attempt. Times are epoch seconds, memory bytes."""

    rank: int
    local_rank: int
    attempt: int
    page_path: Path
    error_path: Path
    pid: int | None = None
    pidfd: int | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    hidden: bool = False
    unknown_because: str = ""
    asked_to_stop: float | None = None
    rss: int | None = None
    #: of it, what is no file's and not shared
    anon: int | None = None
    #: looks on end at which a signal had stopped it
    stopped: int = 0
    cpu_s: float | None = None
    page: Page | None = None
    rate: float | None = None
    phases: PhaseWindows = field(default_factory=PhaseWindows)
    step_times: StepTimer = field(default_factory=StepTimer)
    arrival_delay: ArrivalDelay = field(default_factory=ArrivalDelay)
    child_memory: ChildMemory = field(default_factory=ChildMemory)
    #: the most of its resident memory that a look has seen
    peak_rss: int = 0
    #: the shortest timeout of its process groups, and whether it waits for its accelerator by spinning
    timeout_s: float | None = None
    spins: bool = False
    started_monotonic: float = field(default_factory=time.monotonic)
    _last: tuple[float, int] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.pid is not None and self.ended is None

    @property
    def failed(self) -> bool:
        return self.ended is not None and self.exit_code != 0

    def attach(self, pid: int) -> None:
        """Begin to watch `pid`; one that is gone already is noted as such."""
        self.pid = pid
        self.started = time.time()
        try:
            self.pidfd = os.pidfd_open(pid)
        except (OSError, AttributeError) as error:
            self.end(None, f"the process could not be watched: {error}")

    def pace(self) -> tuple[int, ...] | None:
        """Counters that only training changes: a cleanup after an error calls torch.distributed, too.

        Of a rank that has not trained, the sum of all counters.
        """
        if self.page is None:
            return None
        trained = self.page.step, self.page.batches, self.page.backwards
        return trained if any(trained) else (self.page.heard,)

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Facts that the detection of stalls needs: the timeout of a process group, and its backend."""
        seconds = fact.get("seconds")
        if fact.get("kind") == "timeout" and isinstance(seconds, (int, float)):
            self.timeout_s = float(seconds)
        elif fact.get("kind") == "init":
            names = set(str(fact.get("backend")).replace(":", ",").split(","))
            accelerator = Path("/dev/kfd").exists() or any(Path("/dev").glob("nvidia[0-9]*"))
            self.spins = not names <= _BLOCKING or ("undefined" in names and accelerator)

    def end(self, exit_code: int | None, unknown_because: str = "") -> None:
        self.ended = time.time()
        self.exit_code, self.unknown_because = exit_code, unknown_because
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def sample(self) -> None:
        """Refresh page, memory, CPU time and step rate. About 20 us."""
        with contextlib.suppress(OSError):
            page = read_page(self.page_path.read_bytes()[:PAGE_BYTES])
            if page is not None and page.pid == self.pid:
                self.page = page
        fields = procfs.stat_fields(self.pid or 0)
        self.stopped = self.stopped + 1 if fields and fields[0] == "T" else 0
        if len(fields) > 21 and fields[0] != "Z":
            # proc(5): of a process that may not be traced the kernel hides what follows, as 1 here, its exit code as 0
            self.hidden = fields[23] == "1"
            self.cpu_s = (int(fields[11]) + int(fields[12])) / _TICK
            self.rss = int(fields[21]) * _PAGE_SIZE
            self.peak_rss = max(self.peak_rss, self.rss)
            self.anon = procfs.anonymous_bytes(self.pid or 0)
        now, step = time.monotonic(), self.step or 0
        if self._last is None or now - self._last[0] >= 0.9:
            if self._last is not None:
                self.rate = (step - self._last[1]) / (now - self._last[0])
            self._last = (now, step)

    @property
    def step(self) -> int | None:
        if self.page is None:
            return None
        return max(self.page.step, self.page.user_step) if self.page.user_step >= 0 else self.page.step

    @property
    def epochs(self) -> int:
        """Counted ends of loaders; -1 where there is no loader."""
        return self.page.epochs if self.page is not None and self.page.batches else -1

    @property
    def phase(self) -> str | None:
        return self.page.phase if self.page else None

    def phase_shares(self) -> dict[str, int]:
        """Thousandths of its time by phase, `windows` and, where other ranks are on its node, `late_us`: by how much it
        comes later than the first of them. Empty before the first window is full."""
        shares, late_us = self.phases.shares(), self.arrival_delay.typical_us()
        return shares | {"late_us": late_us} if shares and late_us is not None else shares

    def metrics(self) -> dict[str, Any]:
        children = self.child_memory.sizes(self.pid) if self.pid is not None and self.alive else []
        return {
            "rank": self.rank,
            "pid": self.pid,
            "step": self.step,
            "phase": self.phase,
            "rate": self.rate,
            "step_ms": self.step_times.newest(),
            "data_wait": self.phases.newest("data"),
            "late_ms": self.arrival_delay.newest_ms(time.monotonic()) if self.alive else None,
            "rss": self.rss,
            "anon": self.anon,
            "epochs": self.epochs,
            "cpu": self.cpu_s,
            "alive": self.alive,
            "exit_code": self.exit_code,
        } | ({"children": children} if children else {})

    def exit_record(self) -> dict[str, Any]:
        names = ("rank", "local_rank", "attempt", "pid", "started", "ended", "exit_code", "unknown_because")
        record = {name: getattr(self, name) for name in names}
        record |= {"asked_to_stop": self.asked_to_stop, "step": self.step, "phase": self.phase, "rss": self.rss}
        record |= {"peak_rss": self.peak_rss or None, "phases": self.phase_shares()}
        return record | {"step_times": self.step_times.figures()}


def find_ranks(torchrun: int, ranks: Collection[RankProcess], others: Set[int]) -> list[tuple[RankProcess, int]]:
    """Pair the ranks that torchrun has just started with their processes, by DISTDBG_RANK in each one's environment.

    `others` are children of torchrun that are no ranks. A process that has not exec'd yet has no such variable, and one
    that has died shows no environment at all: those are left for the next look, unless as many dead ones as ranks are
    waiting and they were started in the order in which torchrun starts ranks; it may have adopted others. So it is with
    processes whose program has thrown the variable away (`env -i`, `sudo`), once they have lived a while.
    """
    waiting = [r for r in ranks if r.pid is None]
    known = {r.pid for r in ranks if r.pid is not None} | others
    pairs: list[tuple[RankProcess, int]] = []
    by_rank = {str(r.rank): r for r in waiting}
    corpses: list[int] = []
    nameless: list[int] = []
    for pid in procfs.children(torchrun):
        if pid in known:
            continue
        environment = procfs.environment_of(pid)
        rank = by_rank.get(environment.get(RANK_VARIABLE, ""))
        if rank is not None:
            pairs.append((rank, pid))
        elif not environment and (procfs.stat_fields(pid) or [""])[0] == "Z":
            corpses.append(pid)
        elif time.time() - (procfs.started_at(pid) or math.inf) >= _NAMELESS_S:
            nameless.append(pid)
    left = [r for r in waiting if all(r is not found for found, _ in pairs)]
    for unnamed in (corpses, nameless):
        if left and len(unnamed) == len(left):
            guessed = list(zip(sorted(left, key=lambda r: r.local_rank), sorted(unnamed), strict=True))
            if _in_order([*((r, r.pid) for r in ranks if r.pid is not None), *pairs, *guessed]):
                return pairs + guessed
    return pairs


def find_adopted_ranks(ranks: Collection[RankProcess]) -> list[tuple[RankProcess, int]]:
    """Pair the ranks that torchrun had started, and that had not been found when it was killed, with their processes.

    Those are now children of this process. So are the children of ranks that have died, a loader's workers for example,
    which inherited the variable. torchrun makes each rank the leader of a process group; a worker stays in its rank's.
    """
    waiting = {str(rank.rank): rank for rank in ranks if rank.pid is None}
    leaders = (pid for pid in procfs.children(os.getpid()) if procfs.leads_process_group(pid)) if waiting else ()
    by_rank = ((waiting.pop(procfs.environment_of(pid).get(RANK_VARIABLE, ""), None), pid) for pid in leaders)
    return [(rank, pid) for rank, pid in by_rank if rank is not None]


def _in_order(pairs: list[tuple[RankProcess, int]]) -> bool:
    """torchrun starts its ranks in order of local rank, one after the other."""
    starts = [procfs.start_ticks(pid) for _, pid in sorted(pairs, key=lambda pair: pair[0].local_rank)]
    known = [ticks for ticks in starts if ticks is not None]
    return known == sorted(known)
