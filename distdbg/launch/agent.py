"""The node agent: starts torchrun on one node and watches that node's ranks from outside.

    python <absolute>/distdbg/launch/agent.py --run-dir R --node-rank I … -- torchrun's arguments

Standard library only. One thread runs this loop and never touches the run directory; another (disk.DiskWriter)
does nothing else, so that a frozen file system stops neither the job nor the watching of it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import argparse
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distdbg.collect.cgroups import memory_counters
from distdbg.collect.kernel_log import kernel_messages
from distdbg.launch import processes
from distdbg.launch.control import ControlWatcher
from distdbg.launch.disk import DiskWriter
from distdbg.launch.follower import Follower
from distdbg.launch.node_dir import make_node_dir, remove_node_dir
from distdbg.launch.ranks import RankProcess, find_ranks
from distdbg.launch.torchrun_process import TorchrunProcess
from distdbg.launch.wire import Wire
from distdbg.rundir import NodeFiles, RankFiles, RunDir

_LOOK_FOR_RANKS_S = 0.01
_SAMPLE_S = 1.0
_METRICS_FILE_S = 10.0
#: How long torchrun is held still after a rank's failure, so that the siblings can say what they were handling.
_ASK_SIBLINGS_S = 0.4
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)


class Agent:
    """One node of one run. `run` returns torchrun's exit code, 128+N where signal N ended it."""

    def __init__(self, options: argparse.Namespace, torchrun: list[str]) -> None:
        self.options = options
        self.torchrun_argv = torchrun
        self.run_dir = RunDir(Path(options.run_dir))
        self.attempt = options.attempt - 1
        self.ranks: dict[int, RankProcess] = {}
        self.stopping: str | None = None
        self.started = time.time()
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.peers: dict[Wire, RankProcess | None] = {}
        self.awaited: set[int] = set()
        self.last_metrics_file = 0.0

    # -- life -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        processes.become_subreaper()
        if self.options.parent:
            processes.die_with_parent(self.options.parent)
        self.node_dir = make_node_dir(self.run_dir.id, self.options.node_rank)
        try:
            return self._run()
        finally:
            remove_node_dir(self.node_dir)

    def _run(self) -> int:
        self._catch_signals()
        self._listen()
        # Before any thread of ours: preexec_fn is only safe in a process with one thread.
        self.torchrun = TorchrunProcess(
            self.torchrun_argv, self.node_dir, self.run_dir.path, capture=self.options.capture, stdin=self.options.stdin
        )
        self.disk = DiskWriter()
        self.follower = Follower(self.selector, self.disk, self._log_lost, self.after)
        self.control = ControlWatcher(self.run_dir.control)
        self.launcher = self._connect_launcher()
        self.files = self._node_files(self.options.attempt)
        self.selector.register(self.torchrun.pidfd, selectors.EVENT_READ, self._torchrun_ended)
        self.selector.register(self.control.wake, selectors.EVENT_READ, self._read_control)
        for stream in self.torchrun.streams:
            self.selector.register(stream, selectors.EVENT_READ, lambda s=stream: self._torchrun_says(s))
        self.event(
            "agent-started",
            pid=os.getpid(),
            host=self.options.host,
            node_rank=self.options.node_rank,
            torchrun_pid=self.torchrun.pid,
            argv=self.torchrun_argv,
        )
        self.event("cgroup", when="before", **memory_counters())
        self.after(_SAMPLE_S, self._sample)
        while self.torchrun.exit_code is None:
            self._turn()
        return self._finish()

    def _turn(self) -> None:
        """Wait for the next thing and deal with it."""
        wait = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
        for key, _ in self.selector.select(wait):
            if callable(key.data):
                key.data()
            else:
                self.follower.on_readable(key)
        while self.timers and self.timers[0][0] <= time.monotonic():
            self.timers.pop(0)[1]()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((time.monotonic() + seconds, action))
        self.timers.sort(key=lambda timer: timer[0])

    def _finish(self) -> int:
        """torchrun is gone: end what it left, collect what stands in pipes, say the last words."""
        exit_code = self.torchrun.exit_code or 0
        self._end_leftovers()
        self.follower.close(deadline=5.0)
        self._torchrun_says_rest()
        self._complete_exit_codes(exit_code)
        messages, because = kernel_messages(self.started) if exit_code else ([], "not asked: nothing failed")
        self.event("kernel", messages=messages, because=because)
        self.event("cgroup", when="after", **memory_counters())
        self.event("torchrun-exited", exit_code=exit_code, reported=self.torchrun.reported())
        code = exit_code if exit_code >= 0 else 128 - exit_code
        self.event("agent-finished", exit_code=code)
        self.disk.close(deadline=5.0)
        return code

    def _complete_exit_codes(self, torchrun_exit_code: int) -> None:
        """Codes that torchrun collected before we could read them, from its own closing words."""
        reported = self.torchrun.reported()
        for rank in self.ranks.values():
            if rank.ended is None and rank.pid is None:
                rank.end(None, "the process was never seen")
                self._record_exit(rank)
            known = reported.get(rank.rank, 0 if torchrun_exit_code == 0 else None)
            if rank.exit_code is None and known is not None:
                rank.exit_code, rank.unknown_because = known, ""
                self._record_exit(rank)

    def _end_leftovers(self) -> None:
        """Ranks that outlive torchrun (it was killed) get what it would have given them: SIGTERM, grace, SIGKILL."""
        living = [r for r in self.ranks.values() if r.alive]
        if not living and not self.torchrun.exit_code:
            return
        self._ask_to_stop(living)
        for rank in living:
            processes.kill_group(rank.pid or 0, signal.SIGTERM)
        deadline = time.monotonic() + self.options.grace
        while any(r.alive for r in living) and time.monotonic() < deadline:
            self.after(0.05, self._collect_orphans)
            self._turn()
        for rank in self.ranks.values():  # a failed rank's own helpers share its group: torchrun ends them so, too
            if rank.pid is not None and (rank.failed or rank.alive):
                processes.kill_group(rank.pid, signal.SIGKILL)
        while any(r.alive for r in living):
            self.after(0.05, self._collect_orphans)
            self._turn()

    def _collect_orphans(self) -> None:
        by_pid = {r.pid: r for r in self.ranks.values()}
        for pid, exit_code in processes.reap_adopted({self.torchrun.pid}):
            rank = by_pid.get(pid)
            if rank is not None and rank.alive:
                self._rank_ended(rank, exit_code)

    # -- words to others ------------------------------------------------------------------------------------

    def event(self, name: str, **fields: Any) -> None:  # noqa: ANN401
        """To the node's events.jsonl and, where a launcher listens, to it at once."""
        record = {"t": time.time(), "event": name, **fields}
        self.disk.append(self.files.events, json.dumps(record, default=str).encode() + b"\n")
        if self.launcher is not None:
            self.launcher.send(record)

    def _log_lost(self, rank: int, stream: str, count: int, because: str) -> None:
        self.event("log-lost", rank=rank, stream=stream, bytes=count, because=because)

    def _connect_launcher(self) -> Wire | None:
        if self.options.launcher_fd < 0:
            return None
        wire = Wire(socket.socket(fileno=self.options.launcher_fd))
        self.selector.register(wire, selectors.EVENT_READ, self._launcher_says)
        return wire

    def _launcher_says(self) -> None:
        assert self.launcher is not None
        requests = self.launcher.receive()
        if self.launcher.closed:
            self.selector.unregister(self.launcher)
            self.launcher = None
            self.stop("the launcher is gone")
        for request in requests:
            self._request(request)

    def _read_control(self) -> None:
        for request in self.control.requests():
            self._request(request)

    def _request(self, request: dict[str, Any]) -> None:
        match request.get("request"):
            case "cancel" | "stop":
                self.stop(str(request.get("by") or request.get("reason") or "asked to"))
            case "kill":
                self.kill_now(str(request.get("by") or "asked to"))
            case "signal":
                self._forward(int(request.get("signal", 0)))
            case "exceptions":
                self._ask_exceptions([r for r in self.ranks.values() if r.alive])

    # -- torchrun -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(str(self.node_dir / "agent.sock"))
        self.server.listen(1024)
        self.server.setblocking(False)
        self.selector.register(self.server, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self.server.accept()
            wire = Wire(sock)
            self.peers[wire] = None
            self.selector.register(wire, selectors.EVENT_READ, lambda: self._peer_says(wire))

    def _peer_says(self, wire: Wire) -> None:
        for message in wire.receive():
            self._peer_message(wire, message)
        if wire.closed:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(wire)
            self.peers.pop(wire, None)

    def _peer_message(self, wire: Wire, message: dict[str, Any]) -> None:
        if message.get("op") == "start":
            wire.send(self._start_attempt(message.get("envs", {})))
        elif message.get("op") == "hello":
            self.peers[wire] = self.ranks.get(int(message.get("rank", -1)))
        elif (rank := self.peers.get(wire)) is not None:
            record = {"rank": rank.rank, **message}
            self.disk.append(self._rank_files(rank).facts, json.dumps(record).encode() + b"\n")
            if message.get("op") == "exceptions":
                self.awaited.discard(rank.rank)

    def _start_attempt(self, envs: dict[str, dict[str, str]]) -> dict[str, Any]:
        """torchrun is about to start its ranks: where their streams go, and what must carry their rank."""
        restarts = max((int(env.get("TORCHELASTIC_RESTART_COUNT", 0)) for env in envs.values()), default=0)
        self.attempt = max(self.options.attempt + restarts, self.attempt + 1)
        self.files = self._node_files(self.attempt)
        for old in self.ranks.values():  # ended by torchrun a moment ago; their news may be queued behind this
            if old.alive:
                self._pidfd_ready(old)
        self.ranks = {}
        answer: dict[str, Any] = {
            k: {} for k in ("stdouts", "stderrs", "stdout_logs", "stderr_logs", "error_files", "env")
        }
        for local_rank, env in envs.items():
            rank = RankProcess(
                rank=int(env["RANK"]),
                local_rank=int(local_rank),
                attempt=self.attempt,
                page_path=self.node_dir / f"{int(env['RANK']):05d}.page",
                error_path=self.node_dir / f"{int(env['RANK']):05d}.error.json",
            )
            self.ranks[rank.rank] = rank
            self._open_streams(rank, answer)
            answer["error_files"][local_rank] = str(rank.error_path)
            answer["env"][local_rank] = self._rank_environment(rank)
        self.event("attempt-started", attempt=self.attempt, ranks={r.rank: r.local_rank for r in self.ranks.values()})
        self.after(0, self._look_for_ranks)
        return answer

    def _open_streams(self, rank: RankProcess, answer: dict[str, Any]) -> None:
        files, local = self._rank_files(rank), str(rank.local_rank)
        if not self.options.capture:
            return
        for stream in ("stdout", "stderr", *(("nccl",) if "{nccl_log}" in self.options.rank_env else ())):
            fifo = self.node_dir / f"{rank.rank:05d}.{self.attempt}.{stream}"
            try:
                self.follower.open(rank.rank, stream, fifo, files.stream(stream), files.index(stream))
            except OSError as error:  # no FIFO, no capture: the rank keeps torchrun's own stream
                self.event("log-lost", rank=rank.rank, stream=stream, bytes=None, because=str(error))
                continue
            if stream != "nccl":
                answer[f"{stream}s"][local] = str(fifo)
                answer[f"{stream}_logs"][local] = str(files.stream(stream))

    def _rank_environment(self, rank: RankProcess) -> dict[str, str]:
        values = {
            "rank": str(rank.rank),
            "rank5": f"{rank.rank:05d}",
            "node": str(self.options.node_rank),
            "run": str(self.run_dir.path),
            "node_dir": str(self.node_dir),
            "rank_dir": str(self._rank_files(rank).folder),
            "nccl_log": str(self.node_dir / f"{rank.rank:05d}.{self.attempt}.nccl"),
        }
        templates: dict[str, str] = json.loads(self.options.rank_env)
        return {"DISTDBG_ATTEMPT": str(self.attempt)} | {
            name: _fill(text, values) for name, text in templates.items() if name not in os.environ
        }

    def _torchrun_says(self, stream: int) -> None:
        data = self.torchrun.read(stream)
        if data:
            self.disk.append(self.files.torchrun_log, data, log=True)
        else:
            self.selector.unregister(stream)

    def _torchrun_says_rest(self) -> None:
        for stream in self.torchrun.streams:
            while data := self.torchrun.read(stream):
                self.disk.append(self.files.torchrun_log, data, log=True)

    def _torchrun_ended(self) -> None:
        self.selector.unregister(self.torchrun.pidfd)
        for rank in self.ranks.values():
            if rank.alive and not processes.stat_fields(rank.pid or 0):
                self._pidfd_ready(rank)
        self.torchrun.collect()

    # -- ranks ----------------------------------------------------------------------------------------------

    def _look_for_ranks(self) -> None:
        waiting = [r for r in self.ranks.values() if r.pid is None]
        known = {r.pid for r in self.ranks.values() if r.pid is not None}
        for rank, pid in find_ranks(self.torchrun.pid, waiting, known):
            rank.attach(pid)
            self.event("rank-started", rank=rank.rank, pid=pid, attempt=rank.attempt)
            self.follower.started(rank.rank)
            if rank.pidfd is not None:
                self.selector.register(rank.pidfd, selectors.EVENT_READ, lambda r=rank: self._pidfd_ready(r))
        if any(r.pid is None for r in self.ranks.values()) and self.torchrun.exit_code is None:
            self.after(_LOOK_FOR_RANKS_S, self._look_for_ranks)

    def _pidfd_ready(self, rank: RankProcess) -> None:
        if rank.pidfd is None:
            return
        self.selector.unregister(rank.pidfd)
        fields = processes.stat_fields(rank.pid or 0)
        zombie = bool(fields) and fields[0] == "Z"  # torchrun has not collected it yet: the code is still to be read
        self._rank_ended(rank, os.waitstatus_to_exitcode(int(fields[49])) if zombie else None)

    def _rank_ended(self, rank: RankProcess, exit_code: int | None) -> None:
        if rank.ended is not None:
            return
        rank.sample()
        because = "" if exit_code is not None else "torchrun had collected the process before its exit code was read"
        rank.end(exit_code, because)
        for wire in [w for w, r in self.peers.items() if r is rank]:
            self._peer_says(wire)  # its last words may still stand in the socket
        self.follower.close_rank(rank.rank)
        self._record_exit(rank)
        siblings = [r for r in self.ranks.values() if r.alive]
        if rank.failed and siblings and not self.stopping and not self.awaited:
            self._hold_and_ask(siblings)

    def _record_exit(self, rank: RankProcess) -> None:
        record = rank.exit_record() | {"node_rank": self.options.node_rank, "host": self.options.host}
        files = self._rank_files(rank)
        self.disk.write_whole(files.exit, json.dumps(record, indent=1).encode() + b"\n")
        with contextlib.suppress(OSError):
            self.disk.write_whole(files.error, rank.error_path.read_bytes())
        self.event("rank-exited", **record)

    def _hold_and_ask(self, siblings: list[RankProcess]) -> None:
        """Ask the siblings what they were handling before torchrun ends them: it is held still meanwhile."""
        self.torchrun.hold()
        self._ask_exceptions(siblings)
        deadline = time.monotonic() + _ASK_SIBLINGS_S
        while self.awaited and time.monotonic() < deadline and any(r.alive for r in siblings):
            self.after(0.02, lambda: None)
            self._turn()
        self.awaited.clear()
        self._ask_to_stop([r for r in self.ranks.values() if r.alive])
        self.torchrun.release()

    def _ask_exceptions(self, ranks: list[RankProcess]) -> None:
        asked = {r.rank for r in ranks}
        for wire, rank in list(self.peers.items()):
            if rank is not None and rank.rank in asked:
                wire.send({"op": "exceptions", "id": "death"})
                self.awaited.add(rank.rank)

    def _ask_to_stop(self, ranks: list[RankProcess]) -> None:
        """From now on an end by SIGTERM or SIGKILL is torchrun's or our doing, not a cause."""
        for rank in ranks:
            rank.asked_to_stop = rank.asked_to_stop or time.time()

    def _sample(self) -> None:
        for rank in self.ranks.values():
            if rank.alive:
                rank.sample()
        metrics = [rank.metrics() for rank in self.ranks.values()]
        if self.launcher is not None:
            self.launcher.send({"t": time.time(), "event": "metrics", "ranks": metrics})
        if time.monotonic() - self.last_metrics_file >= _METRICS_FILE_S:
            self.last_metrics_file = time.monotonic()
            line = json.dumps({"t": time.time(), "ranks": metrics})
            self.disk.append(self.files.metrics, line.encode() + b"\n")
        self.after(_SAMPLE_S, self._sample)

    # -- signals and the end --------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in (*_STOP_SIGNALS, *_FORWARDED):
            signal.signal(signum, lambda *_: None)
        self.selector.register(reader, selectors.EVENT_READ, lambda: self._signals(os.read(reader, 64)))

    def _signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _FORWARDED:
                self._forward(number)
            elif self.stopping and number == signal.SIGINT:
                self.kill_now("SIGINT twice")
            else:
                self.stop(signal.Signals(number).name)

    def _forward(self, number: int) -> None:
        """To the ranks that have a handler for it; torchrun itself would die of it and orphan them."""
        living = [r for r in self.ranks.values() if r.alive and r.pid]
        given = [r.rank for r in living if processes.catches(r.pid or 0, number)]
        for rank in living:
            if rank.rank in given:
                processes.kill(rank.pid or 0, number)
        without = [r.rank for r in living if r.rank not in given]
        self.event("signal", signal=signal.Signals(number).name, to=given, without_handler=without)

    def stop(self, reason: str) -> None:
        """End the ranks as torchrun does at SIGTERM; what is left after the grace period is killed."""
        if self.stopping:
            return
        self.stopping = reason
        self.event("stopping", reason=reason)
        self._ask_to_stop([r for r in self.ranks.values() if r.alive])
        self.torchrun.terminate()
        self.after(self.options.grace, lambda: self.kill_now("the grace period is over"))

    def kill_now(self, reason: str) -> None:
        self.stopping = self.stopping or reason
        self.event("killing", reason=reason)
        living = [r for r in self.ranks.values() if r.alive]
        self._ask_to_stop(living)
        for rank in living:
            processes.kill_group(rank.pid or 0, signal.SIGKILL)
        self.after(2.0, self.torchrun.kill)

    # -- names ----------------------------------------------------------------------------------------------

    def _node_files(self, attempt: int) -> NodeFiles:
        return self.run_dir.attempt(attempt).node(self.options.node_rank, self.options.host)

    def _rank_files(self, rank: RankProcess) -> RankFiles:
        return self.run_dir.attempt(rank.attempt).rank(rank.rank)


def _fill(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _options(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    own, torchrun = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    parser = argparse.ArgumentParser(prog="distdbg agent", allow_abbrev=False)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--node-rank", type=int, required=True)
    parser.add_argument("--host", default=socket.gethostname())
    parser.add_argument("--attempt", type=int, default=1, help="the number of this start of ranks, from 1")
    parser.add_argument("--grace", type=float, default=30.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--no-capture", dest="capture", action="store_false")
    parser.add_argument("--stdin", choices=("inherit", "null"), default="null")
    parser.add_argument("--launcher-fd", type=int, default=-1, help="a socket to the launcher, -1 for none")
    parser.add_argument("--parent", type=int, default=0, help="pid to end with, 0 for none")
    parser.add_argument("--rank-env", default="{}", help="JSON: variables whose value needs the rank")
    return parser.parse_args(own), torchrun


def main() -> int:
    options, torchrun = _options(sys.argv[1:])
    try:
        return Agent(options, torchrun).run()
    except subprocess.SubprocessError as error:
        print(f"distdbg agent: torchrun could not be started: {error}", file=sys.stderr)
        return 70


if __name__ == "__main__":
    sys.exit(main())
