"""Watch a node's ranks from start to end: their streams, processes, samples and exit records."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.cgroups import available_bytes, memory_counters
from distdbg.collect.machine.kernel_log import has_kernels_pids, kernel_messages
from distdbg.launch.agent.death_dump import DeathDumps
from distdbg.launch.agent.follower import Follower
from distdbg.launch.agent.gpu_watch import GpuWatch, may_have_gpus
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.progress import ProgressSampler
from distdbg.launch.agent.rank_connections import RankConnections
from distdbg.launch.agent.ranks import RANK_VARIABLE, RankProcess, find_adopted_ranks, find_ranks
from distdbg.launch.agent.timing import PhaseClock
from distdbg.launch.agent.torchrun_process import RankVariables, TorchrunProcess
from distdbg.launch.io import processes
from distdbg.launch.io.loop import Loop
from distdbg.protocol import agent_events as events
from distdbg.rundir import RankFiles

if TYPE_CHECKING:
    from distdbg.launch.agent.exporting import Exporter

_LOOK_FOR_RANKS_S = 0.01
_SAMPLE_S = 1.0
_METRICS_FILE_S = 10.0
_PHASES_S = 3.0
#: A capture pauses a rank for milliseconds; a rank that is stopped for this many samples was stopped otherwise.
_STOPPED_LOOKS = 5
#: How long torchrun is held still after a rank's failure, so that the siblings can say what they were handling.
_ASK_SIBLINGS_S = 0.4
#: Durations are shown in seconds: less is not a wrong statement. NTP slews by 0.5 ms a second at most.
_LEAST_CLOCK_CHANGE_S = 1.0
_COLLECTED = "torchrun had collected the process before its exit code was read"


class ClockWatch:
    """Notice that the clock of the node is set (NTP, a person): times before and after do not compare.

    `change` is called every second. CLOCK_BOOTTIME goes on while the machine is suspended, as the clock does.
    """

    def __init__(self) -> None:
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def change(self) -> float:
        """Return by how many seconds the clock was set since the last call; 0 if it was not."""
        before, self._booted = self._booted, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        changed_s = self._booted - before
        return changed_s if abs(changed_s) >= _LEAST_CLOCK_CHANGE_S else 0.0


class AttemptBounds:
    """Records at both ends of an attempt what the kernel counts and reports of memory and crashes.

    Those of an earlier attempt say nothing about its ranks.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)

    def begin(self) -> None:
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._node.event(events.Cgroup(when="before", more=memory_counters()))

    def end(self, *, failed: bool) -> None:
        messages, because = kernel_messages(self._since) if failed else ([], "not asked: nothing failed")
        self._node.event(events.Kernel(messages=messages, because=because, own_pids=has_kernels_pids()))
        self._node.event(events.Cgroup(when="after", more=memory_counters()))


class RankWatch:
    """The ranks of the newest attempt. `connections` serves `agent.sock` in the node's folder."""

    def __init__(
        self,
        loop: Loop,
        node: Node,
        torchrun: TorchrunProcess,
        *,
        capture: bool,
        rank_env: Mapping[str, str],
        close_look_s: float,
        exporter: Exporter | None = None,
    ) -> None:
        self.ranks: dict[int, RankProcess] = {}
        #: Children that torchrun had before it started the attempt: ranks of the last one, or helpers.
        self._no_ranks: set[int] = set()
        self._loop = loop
        self._node = node
        self._torchrun = torchrun
        self._capture = capture
        self._exporter = exporter
        self._rank_variables = RankVariables(torchrun.argv)
        self._rank_env = {n: v for n, v in rank_env.items() if n not in os.environ}
        self._follower = Follower(loop.selector, node.disk, self._log_lost, loop.after)
        loop.foreign = self._follower.on_readable
        self._clock = ClockWatch()
        self._progress = ProgressSampler(close_look_s) if close_look_s >= 0 else None
        self._first_attempt = node.attempt
        self._started_once = False
        self.attempt_bounds = AttemptBounds(node)
        self._is_stopping = False
        self.connections = RankConnections(loop, node, lambda: self.ranks, self._start_attempt)
        self._holding = self._refusal_reported = False
        self.death_dumps = DeathDumps(loop, node)
        self._last_metrics_file = self._phases_sent = float("-inf")
        self.gpus: GpuWatch | None = None
        loop.every(_SAMPLE_S, self._sample)
        self.phases = PhaseClock(loop, lambda: self.living)

    @property
    def living(self) -> list[RankProcess]:
        return [r for r in self.ranks.values() if r.alive]

    # -- start ----------------------------------------------------------------------------------------------

    def _start_attempt(self, envs: Mapping[str, Any]) -> dict[str, Any]:
        """torchrun is about to start its ranks: where their streams go, and what must carry their rank."""
        for old in self.living:  # ended by torchrun a moment ago; their news may be queued behind this
            self._pidfd_ready(old)
        restarts = max((int(env.get("TORCHELASTIC_RESTART_COUNT", 0)) for env in envs.values()), default=0)
        if self._started_once:
            self.attempt_bounds.end(failed=True)
        self._node.attempt = max(self._first_attempt + restarts, self._node.attempt + self._started_once)
        if self._started_once:
            self.attempt_bounds.begin()
        self._started_once = True
        self.ranks = {}
        self._no_ranks = set(procfs.children(self._torchrun.pid))
        answer: dict[str, Any] = {
            key: {} for key in ("stdouts", "stderrs", "stdout_logs", "stderr_logs", "error_files", "env")
        }
        for local, env in envs.items():
            number, attempt, folder = int(env["RANK"]), self._node.attempt, self._node.folder
            rank = self.ranks[number] = RankProcess(
                rank=number,
                local_rank=int(local),
                attempt=attempt,
                page_path=folder / f"{number:05d}.page",
                error_path=folder / f"{number:05d}.{attempt}.error.json",
            )
            if self._capture:
                self._open_streams(rank, answer)
            answer["error_files"][local] = str(rank.error_path)
            answer["env"][local] = self._rank_variables.changes(env) | self._environment(rank)
        local_ranks = {r.rank: r.local_rank for r in self.ranks.values()}
        self._node.event(events.AttemptStarted(attempt=self._node.attempt, ranks=local_ranks))
        self._loop.after(0, self._look_for_ranks)
        return answer

    def _open_streams(self, rank: RankProcess, answer: dict[str, Any]) -> None:
        files, local = self._files(rank), str(rank.local_rank)
        nccl = ("nccl",) if any("{nccl_log}" in v for v in self._rank_env.values()) else ()
        for stream in ("stdout", "stderr", *nccl):
            fifo = self._node.folder / f"{rank.rank:05d}.{rank.attempt}.{stream}"
            try:
                self._follower.open(rank.rank, stream, fifo, files.stream(stream), files.index(stream))
            except OSError as error:  # no FIFO, no capture: the rank keeps torchrun's own stream
                self._log_lost(rank.rank, stream, 0, str(error))
                continue
            if stream != "nccl":
                answer[f"{stream}s"][local] = str(fifo)
                answer[f"{stream}_logs"][local] = str(files.stream(stream))

    def _environment(self, rank: RankProcess) -> dict[str, str]:
        values = {
            "rank": str(rank.rank),
            "rank5": f"{rank.rank:05d}",
            "node": str(self._node.node_rank),
            "run": str(self._node.run.path),
            "node_dir": str(self._node.folder),
            "rank_dir": str(self._files(rank).folder),
            "nccl_log": str(self._node.folder / f"{rank.rank:05d}.{rank.attempt}.nccl"),
        }
        # a log without a reader would fill the node's memory
        wanted = {n: v for n, v in self._rank_env.items() if self._capture or "{nccl_log}" not in v}
        for name, value in values.items():
            wanted = {n: v.replace("{" + name + "}", value) for n, v in wanted.items()}
        return {"DISTDBG_ATTEMPT": str(rank.attempt), RANK_VARIABLE: str(rank.rank)} | wanted

    def _look_for_ranks(self) -> None:
        for rank, pid in find_ranks(self._torchrun.pid, self.ranks.values(), self._no_ranks):
            self._attach(rank, pid)
        if any(r.pid is None for r in self.ranks.values()) and self._torchrun.exit_code is None:
            self._loop.after(_LOOK_FOR_RANKS_S, self._look_for_ranks)

    def _attach(self, rank: RankProcess, pid: int) -> None:
        rank.attach(pid)
        if self._is_stopping:
            rank.asked_to_stop = time.time()
        self._node.event(events.RankStarted(rank=rank.rank, pid=pid, attempt=rank.attempt))
        self._follower.started(rank.rank)
        if rank.pidfd is not None:
            self._loop.watch(rank.pidfd, lambda: self._pidfd_ready(rank))

    # -- while they run -------------------------------------------------------------------------------------

    def _sample(self) -> None:
        for rank in self.living:
            before = rank.stopped
            rank.sample()
            if rank.stopped == _STOPPED_LOOKS:
                self._node.event(events.RankStopped(rank=rank.rank))
            elif before >= _STOPPED_LOOKS and not rank.stopped:
                self._node.event(events.RankContinued(rank=rank.rank))
        if self.gpus is None and self.living and may_have_gpus():
            self.gpus = GpuWatch(
                self._loop,
                lambda: {r.rank: r.pid or 0 for r in self.living},
                lambda uuid, xid, ranks: self._node.event(events.GpuXid(uuid=uuid, xid=xid, ranks=ranks)),
            )
            self.gpus.start()
        self.report_refusal(at_end=False)
        if set_by_s := self._clock.change():
            self._node.event(events.ClockSet(by_s=round(set_by_s, 1)))
        metrics = [rank.metrics() for rank in self.ranks.values()]
        record = events.Metrics(ranks=metrics, more={}).record(time.time())
        if self._node.launcher is not None:
            self._node.launcher.send(record)
            if self._progress is not None:
                self._node.launcher.send(self._progress.message(self.living))
            if time.monotonic() - self._phases_sent >= _PHASES_S and (phases := self.phases.shares()):
                self._phases_sent = time.monotonic()
                step_ms = {str(rank.rank): rank.step_times.newest() for rank in self.living}
                self._node.launcher.send(events.Phases(ranks=phases, step_ms=step_ms).record(time.time()))
        due = time.monotonic() - self._last_metrics_file >= _METRICS_FILE_S
        if due or self._exporter is not None:
            record |= {"memory": {**memory_counters(), "available": available_bytes()}}
            record |= self.gpus.figures() if self.gpus is not None else {}
        if self._exporter is not None:
            self._exporter.publish(record)
        if due:
            self._last_metrics_file = time.monotonic()
            self._node.disk.append(self._node.files.metrics, json.dumps(record).encode() + b"\n")

    def forward(self, number: int) -> None:
        """A signal to the ranks that have a handler for it; torchrun itself would die of it and orphan them."""
        given = [r for r in self.living if processes.catches(r.pid or 0, number)]
        without = [r.rank for r in self.living if r not in given]
        for rank in given:
            processes.kill(rank.pid or 0, number)
        name = signal.Signals(number).name
        self._node.event(events.Signalled(signal=name, to=[r.rank for r in given], without_handler=without))

    def report_refusal(self, *, at_end: bool) -> None:
        """Report once while the ranks run, and at the end, that the run directory takes no records."""
        refusal = self._node.disk.refusal
        if refusal is not None and (at_end or not self._refusal_reported):
            self._refusal_reported = True
            self._node.event(events.WriteRefused(path=str(refusal[0]), because=refusal[1], at_end=at_end))

    def _log_lost(self, rank: int, stream: str, count: int, because: str) -> None:
        self._node.event(events.LogLost(rank=rank, stream=stream, bytes=count, because=because))

    # -- the end --------------------------------------------------------------------------------------------

    def _pidfd_ready(self, rank: RankProcess) -> None:
        if rank.pidfd is None:
            return
        self._loop.forget(rank.pidfd)
        fields = procfs.stat_fields(rank.pid or 0)
        # torchrun has not collected it yet: the code is still to be read
        zombie = bool(fields) and fields[0] == "Z" and not rank.hidden
        self.ended(rank, os.waitstatus_to_exitcode(int(fields[49])) if zombie else None)

    def ended(self, rank: RankProcess, exit_code: int | None) -> None:
        """Take down how a rank ended; when it is the first to fail, ask the others before torchrun ends them."""
        if rank.ended is not None:
            return
        if rank.pidfd is not None:
            self._loop.forget(rank.pidfd)
        rank.sample()
        rank.end(exit_code, "" if exit_code is not None else _COLLECTED)
        self.connections.hear_rest(rank)
        self._follower.close_rank(rank.rank)
        self._record(rank)
        if rank.failed and rank.asked_to_stop is None and self.living and not self._holding:
            self._hold_and_ask(rank)

    def _hold_and_ask(self, dead: RankProcess) -> None:
        self._holding = True
        self._torchrun.hold()
        self.connections.ask_exceptions()
        look = self.death_dumps.begin(dead, list(self.ranks.values()))
        self._loop.turn_until(lambda: (not self.connections.awaited and look.done) or not self.living, _ASK_SIBLINGS_S)
        self.note_asked_to_stop()
        self._torchrun.release()
        look.write()
        self._holding = False

    def begin_stop(self) -> None:
        """The agent ends the ranks, those that it finds from now on included."""
        self._is_stopping = True
        self.note_asked_to_stop()

    def note_asked_to_stop(self) -> None:
        """From now on torchrun or the agent caused an end by SIGTERM or SIGKILL: it is no failure."""
        for rank in self.living:
            rank.asked_to_stop = rank.asked_to_stop or time.time()

    def kill(self, signum: int) -> None:
        """Send the signal to each living rank's process group, as torchrun does."""
        self.note_asked_to_stop()
        for rank in self.living:
            processes.kill_group(rank.pid or 0, signum)

    def end_leftovers(self, grace: float) -> None:
        """torchrun is gone: ranks that outlive it (it was killed) get SIGTERM, the grace period, SIGKILL.

        What a failed rank leaves in its own process group (loader workers) goes with it, as it is ours to end.
        """
        for rank, pid in find_adopted_ranks(self.ranks.values()):
            self._attach(rank, pid)
        if self.living:
            self.kill(signal.SIGTERM)
            if not self._loop.turn_until(lambda: not self.living, grace, self._collect_adopted):
                self.kill(signal.SIGKILL)
                self._loop.turn_until(lambda: not self.living, 10.0, self._collect_adopted)
        failed = {r.pid for r in self.ranks.values() if r.failed and r.pid}
        for pid in processes.group_members(failed, f"DISTDBG_RUN_DIR={self._node.run.path}") if failed else ():
            processes.kill(pid, signal.SIGKILL)

    def _collect_adopted(self) -> None:
        by_pid = {r.pid: r for r in self.ranks.values()}
        for pid, exit_code in processes.reap_adopted({self._torchrun.pid}):
            if (rank := by_pid.get(pid)) is not None:
                self.ended(rank, exit_code)

    def look_after_torchrun(self) -> None:
        """torchrun has just ended: what it had collected is gone from the process table."""
        for rank in self.living:
            if not procfs.stat_fields(rank.pid or 0):
                self._pidfd_ready(rank)

    def complete(self, torchrun_exit_code: int) -> None:
        """Last bytes, and codes that torchrun collected before we could read them, from its own closing words."""
        self._follower.close(deadline=5.0)
        if self.gpus is not None:
            self.gpus.close()
        reported = self.reported()
        for rank in self.ranks.values():
            if rank.pid is None:
                rank.end(None, "the process was never seen")
                self._record(rank)
            known = reported.get(rank.rank, 0 if torchrun_exit_code == 0 else None)
            if rank.exit_code is None and known is not None:
                rank.exit_code, rank.unknown_because = known, ""
                self._record(rank)

    def reported(self) -> dict[int, int]:
        """Rank -> exit code, as torchrun has printed it at the end."""
        by_local_rank = self._torchrun.reported()
        return {r.rank: by_local_rank[r.local_rank] for r in self.ranks.values() if r.local_rank in by_local_rank}

    def _record(self, rank: RankProcess) -> None:
        record = rank.exit_record() | {"node_rank": self._node.node_rank, "host": self._node.host}
        files = self._files(rank)
        self._node.disk.write_whole(files.exit, json.dumps(record, indent=1).encode() + b"\n")
        with contextlib.suppress(OSError):
            self._node.disk.write_whole(files.error, rank.error_path.read_bytes())
        if (written := self._node.folder / f"recorder_{rank.rank}").is_file():  # by torch's watchdog, at a timeout
            self._node.disk.take(files.recorder, written)
        self._node.event(events.RankExited(**record))

    def _files(self, rank: RankProcess) -> RankFiles:
        return self._node.run.attempt(rank.attempt).rank(rank.rank)
