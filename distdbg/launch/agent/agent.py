"""The node agent: starts torchrun on one node and watches that node's ranks from outside.

    python <absolute>/distdbg/launch/agent/agent.py --run-dir R --node-rank I … -- torchrun's arguments
    python <absolute>/distdbg/launch/backends/remote_agent.py --remote R --node-rank I|NAME   # on another host

Standard library and psutil only. One thread runs the loop and never touches the run directory; another
(disk.DiskWriter) does nothing else, so that a frozen file system stops neither the job nor the watching of it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import argparse
import json
import os
import signal
import socket
import subprocess
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.collect.machine import procfs
from distdbg.errors import process_limit
from distdbg.evidence.exit_status import shell_code
from distdbg.launch.agent.node import RANK_BYTES, make_node_dir, remove_node_dir
from distdbg.launch.agent.torchrun_process import TorchrunProcess
from distdbg.launch.io import processes
from distdbg.launch.io.loop import Loop
from distdbg.launch.link import keeper
from distdbg.launch.link.liveness import Lifeline
from distdbg.launch.link.wire import StdioWire, Wire
from distdbg.masking import mask_argv
from distdbg.protocol import agent_events as events
from distdbg.protocol import requests
from distdbg.rundir import RunDir
from distdbg.whole_file import make_private_folder, write_whole

if TYPE_CHECKING:
    from distdbg.launch.agent.exporting import Exporter
    from distdbg.launch.link.meeting import Orders

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
#: After the ranks were killed torchrun has this long to notice.
_TORCHRUN_NOTICES_S = 2.0
#: Between the last look at ranks that were cut off and their end.
_EVIDENCE_TAKES_S = 3.0
#: Where torchrun counts them itself, a node has as many ranks, or so.
_MANY_RANKS = 8


class Agent:
    """One node of one run. `run` returns torchrun's exit code, 128+N where signal N ended it."""

    def __init__(
        self, options: argparse.Namespace, torchrun: list[str], folder: Path, launcher: Wire | None = None
    ) -> None:
        run = RunDir(Path(options.run_dir))
        self.grace: float = options.grace
        self.stopping: str | None = None
        self.lifeline: Lifeline | None = None
        self.loop = Loop()
        self.loop.catch((*_STOP_SIGNALS, *_FORWARDED, processes.PARENT_DIED), self._signal)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(folder / "agent.sock"))
        server.listen(1024)
        # Before any thread of ours: preexec_fn is only safe in a process with one thread.
        self.torchrun = TorchrunProcess(
            torchrun,
            folder,
            run.path,
            capture=options.capture,
            stdin=options.stdin,
            handles={name.strip() for name in options.torchrun_handles.split(",")},
        )
        # torchrun loads torch for seconds before there are ranks: what watches them is loaded meanwhile.
        from distdbg.launch.agent.dumping import Dumper
        from distdbg.launch.agent.node import Node
        from distdbg.launch.agent.rank_watch import RankWatch
        from distdbg.launch.agent.straggler_stacks import StragglerStacks
        from distdbg.launch.io.disk import DiskWriter

        self.node = Node(run, options.node_rank, options.host, folder, options.attempt, DiskWriter())
        self._broken_places: set[tuple[object, ...]] = set()
        self.loop.broke = self._broke
        self.exporter: Exporter | None = None
        if options.prom_dir is not None or options.metrics_port is not None:  # else nothing is loaded for figures
            from distdbg.launch.agent.exporting import Exporter

            prom_dir = Path(options.prom_dir) if options.prom_dir else None
            self.exporter = Exporter(self.node, prom_dir, options.metrics_port)
        rank_env = json.loads(options.rank_env)
        self.watch = RankWatch(
            self.loop,
            self.node,
            self.torchrun,
            capture=options.capture,
            rank_env=rank_env,
            close_look_s=options.close_look,
            exporter=self.exporter,
        )
        self.dumper = Dumper(self.loop, self.node, self.watch)
        self.straggler_stacks = StragglerStacks(self.loop, self.node, self.dumper)
        self.watch.connections.serve(server)
        self._server = server
        if options.launcher_fd >= 0:
            launcher = Wire(socket.socket(fileno=options.launcher_fd))
        self._listen_to_others(run, launcher)
        self.node.event(
            events.AgentStarted(
                pid=os.getpid(),
                host=options.host,
                node_rank=options.node_rank,
                torchrun_pid=self.torchrun.pid,
                argv=mask_argv(torchrun),
            )
        )

    def run(self) -> int:
        self.watch.attempt_bounds.begin()
        while self.torchrun.exit_code is None:
            self.loop.turn()
        return self._finish(self.torchrun.exit_code)

    def _finish(self, exit_code: int) -> int:
        """torchrun is gone: end what it left, read what is in pipes, send the last events."""
        self.dumper.stop()
        self.watch.end_leftovers(self.grace)
        for stream in self.torchrun.streams:
            self._torchrun_says(stream)
        self.watch.complete(exit_code)
        self.watch.attempt_bounds.end(failed=exit_code != 0)
        self.node.event(events.TorchrunExited(exit_code=exit_code, reported=self.watch.reported()))
        self.watch.report_refusal(at_end=True)
        code = shell_code(exit_code)
        if self.exporter is not None:
            self.exporter.close()
        self.node.event(events.AgentFinished(exit_code=code))
        self.node.disk.close(deadline=5.0)
        return code

    def _broke(self, error: Exception) -> None:
        """An error of ours: it is written down, once for each place that raises it, and the job goes on."""
        frames = traceback.extract_tb(error.__traceback__)
        place = (type(error), *((frame.filename, frame.lineno) for frame in frames[-1:]))
        if place not in self._broken_places:
            self._broken_places.add(place)
            said = "".join(traceback.format_exception(error))
            self.node.event(events.AgentError(error=repr(error), traceback=said))

    # -- who speaks to us -----------------------------------------------------------------------------------

    def _listen_to_others(self, run: RunDir, launcher: Wire | None) -> None:
        if not isinstance(launcher, StdioWire):  # from another host it passes on what is asked there
            from distdbg.launch.io.control import ControlWatcher

            self.control = ControlWatcher(run.control)
            self.loop.watch(self.control.wake, lambda: self._obey_all(self.control.requests()))
        self.loop.watch(self.torchrun.pidfd, self._torchrun_ended)
        for stream in self.torchrun.streams:
            self.loop.watch(stream, lambda s=stream: self._torchrun_says(s))  # type: ignore[misc]
        if launcher is not None:
            self.node.launcher = launcher
            self.loop.watch(launcher.fileno(), self._launcher_says)

    def obey(self, orders: Orders) -> None:
        """On another host: from now on the launcher's pings are expected."""
        self.lifeline = Lifeline(self.loop, orders.launcher_endpoints, self._cut_off)
        self._obey_all(orders.rest)

    def _cut_off(self, silent_s: float) -> None:
        """The ranks here wait for others that do not hear them: what they know is kept, then they end."""
        self.node.event(events.CutOff(silent_s=silent_s))
        folder = self.node.run.attempt(self.node.attempt).dump("cut-off")
        self.watch.death_dumps.beside(folder, list(self.watch.ranks.values()))

        def end() -> None:
            """torchrun may wait for a store on the other side for minutes, and would end its ranks only then."""
            self.stop(events.LAUNCHER_UNREACHABLE)
            self.watch.kill(signal.SIGTERM)
            self._end_torchrun_alone()

        self.loop.after(_EVIDENCE_TAKES_S, end)

    def _end_torchrun_alone(self) -> None:
        if any(rank.alive for rank in self.watch.ranks.values()):
            self.loop.after(0.5, self._end_torchrun_alone)
        else:
            self.loop.after(_TORCHRUN_NOTICES_S, self.torchrun.kill)

    def _launcher_says(self) -> None:
        launcher = self.node.launcher
        if launcher is None:
            return
        descriptor = launcher.fileno()
        records = launcher.receive()
        if launcher.closed:
            self.loop.forget(descriptor)
            self.node.launcher = None
            self.stop(events.LAUNCHER_GONE)
        self._obey_all(records)

    def _obey_all(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            self._request(record)

    def _request(self, record: dict[str, Any]) -> None:
        match requests.read_request(record, self.node.node_rank):
            case requests.Cancel(by=by):
                self.stop(by or "cancelled")
            case requests.Stop(reason=reason, most_grace=most):
                self.stop(reason or "requested", self.grace if most is None else min(most, self.grace))
            case requests.Kill(by=by):
                self.kill_now(by or "requested")
            case requests.SendSignal(signal=number):
                self._forward(number)
            case requests.AskExceptions():
                self.watch.connections.ask_exceptions()
            case requests.TakeDump() as request:
                self.dumper.ask(request)
            case requests.Ping(t=asked) if self.lifeline is not None and self.node.launcher is not None:
                self.lifeline.ping()
                self.node.launcher.send(events.Pong(asked=asked).record(time.time()))
            case requests.TakeSnapshot() | requests.TakeProfile() as request:
                self.watch.connections.ask_files(request)
            case requests.SampleStraggler() as request:
                self.straggler_stacks.ask(request, self.watch.ranks)
            case requests.TakeDeathDump(folder=folder):
                self.watch.death_dumps.beside(Path(folder), list(self.watch.ranks.values()))

    def _torchrun_says(self, stream: int) -> None:
        while data := self.torchrun.read(stream):
            self.node.disk.append(self.node.files.torchrun_log, data, log=True)
        if self.torchrun.silent:
            self.loop.forget(stream)

    def _torchrun_ended(self) -> None:
        self.loop.forget(self.torchrun.pidfd)
        self.watch.look_after_torchrun()
        self.torchrun.collect()

    # -- the end --------------------------------------------------------------------------------------------

    def _signal(self, number: int) -> None:
        if number in _FORWARDED:
            self._forward(number)
        elif self.stopping and number == signal.SIGINT:
            self.kill_now("SIGINT twice")
        elif number == processes.PARENT_DIED:
            self.stop(events.PARENT_GONE if self.lifeline is not None else events.LAUNCHER_GONE)
        else:
            self.stop(signal.Signals(number).name)

    def _forward(self, number: int) -> None:
        """Send it to the ranks; torchrun itself handles a signal of --signals-to-handle, and ends them."""
        name = signal.Signals(number).name
        if name in self.torchrun.handles:
            self.stop(name)
        else:
            self.watch.forward(number)

    def stop(self, reason: str, grace: float | None = None) -> None:
        """End the ranks as torchrun does at a signal; what is left after the grace period is killed."""
        if self.stopping:
            return
        self.stopping = reason
        self.node.event(events.Stopping(reason=reason))
        self.watch.begin_stop()
        self.torchrun.terminate(reason)
        self._continue_stopped()
        self.loop.after(self.grace if grace is None else grace, lambda: self.kill_now("the grace period is over"))

    def _continue_stopped(self) -> None:
        """A rank that is stopped takes no SIGTERM before it is continued. It gets ours first, and so trains no more."""
        for rank in self.watch.living:
            if procfs.is_stopped(rank.pid or 0):
                processes.kill_group(rank.pid or 0, signal.SIGTERM)
                processes.kill_group(rank.pid or 0, signal.SIGCONT)

    def kill_now(self, reason: str) -> None:
        self.stopping = self.stopping or reason
        self.node.event(events.Killing(reason=reason))
        self.watch.kill(signal.SIGKILL)
        self.loop.after(_TORCHRUN_NOTICES_S, self.torchrun.kill)


def _options(own: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distdbg agent", allow_abbrev=False)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--node-rank", type=int, required=True)
    parser.add_argument("--host", default=socket.gethostname())
    parser.add_argument("--attempt", type=int, default=1, help="the number of this start of ranks, from 1")
    parser.add_argument("--grace", type=float, default=30.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--no-capture", dest="capture", action="store_false")
    parser.add_argument("--stdin", choices=("inherit", "null"), default="null")
    parser.add_argument("--torchrun-handles", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT", help="signals, as it has them")
    parser.add_argument("--launcher-fd", type=int, default=-1, help="a socket to the launcher, -1 for none")
    parser.add_argument("--parent", type=int, default=0, help="pid to end with, 0 for none")
    parser.add_argument("--close-look", type=float, default=-1, help="seconds of silence; -1: nobody watches for hangs")
    parser.add_argument("--prom-dir", help="where node_exporter looks for *.prom")
    parser.add_argument("--metrics-port", type=int, help="on loopback, for Prometheus")
    parser.add_argument("--rank-env", default="{}", help="JSON: variables whose value needs the rank")
    return parser.parse_args(own)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--remote"]:
        node_rank = int(os.environ[argv[3]] if not argv[3].isdecimal() else argv[3])
        return keeper.keep(node_rank, lambda parent: _remote(parent, Path(argv[1]), node_rank))
    own, torchrun = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    return _run(_options(own), torchrun)


def _remote(parent: int, run: Path, node_rank: int) -> int:
    """On another host: the standard streams are the wire, and what others print goes to standard error."""
    from distdbg.launch.link.liveness import LivenessPort
    from distdbg.launch.link.meeting import meet

    processes.die_with_parent(parent)
    wire = StdioWire(node_rank, os.dup(0), os.dup(1))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    endpoint = LivenessPort()  # open as long as this process is
    orders = meet(wire, node_rank, run, endpoint)
    if orders is None:
        return 0
    try:
        os.chdir(orders.start.cwd)  # as under srun; ssh begins at home
    except OSError as error:
        print(f"distdbg agent: {error}: the job was launched from a folder that is not here", file=sys.stderr)
        return 70
    os.environ.update(orders.start.environment)
    for name in orders.start.unset:
        os.environ.pop(name, None)
    return _run(_options([*orders.own, "--parent", str(parent)]), orders.torchrun, wire, orders)


def _run(
    options: argparse.Namespace, torchrun: list[str], wire: Wire | None = None, orders: Orders | None = None
) -> int:
    processes.become_subreaper()
    if options.parent:
        processes.die_with_parent(options.parent, processes.PARENT_DIED)
    count = dict(pairwise(torchrun)).get("--nproc-per-node", "")
    room = RANK_BYTES * (int(count) if count.isdecimal() else _MANY_RANKS)
    folder: Path | None = None
    try:
        folder, passed_over = make_node_dir(Path(options.run_dir).name, options.node_rank, room)
        agent = Agent(options, torchrun, folder, wire)
        agent.node.event(events.NodeDir(folder=str(folder), passed_over=passed_over))
        if orders is not None:
            agent.obey(orders)
        return agent.run()
    except Exception as error:
        limit = process_limit(error)
        said = f"torchrun could not be started: {error}" if limit is None else limit.message
        if limit is None and not isinstance(error, subprocess.SubprocessError):
            _write_down(options, traceback.format_exc())
            raise  # who started us shows it, and forgets it
        sys.stderr.write(f"distdbg agent: {said}\n")
        _write_down(options, f"distdbg agent: {said}\n")
        return 70 if limit is None else 1
    finally:
        if folder is not None:
            remove_node_dir(folder)


def _write_down(options: argparse.Namespace, text: str) -> None:
    """Write the last message of an agent that ends by an error of ours; a frozen file system does not block it."""
    from distdbg.launch.io.disk import DiskWriter

    files = RunDir(Path(options.run_dir)).attempt(options.attempt).node(options.node_rank, options.host)
    disk, said = DiskWriter(), text.encode("utf-8", "backslashreplace")
    try:
        disk.append(files.agent_log, said)
    except RuntimeError:  # no thread can be started, which may be why the agent ends
        make_private_folder(files.agent_log.parent)
        write_whole(files.agent_log, said)
    else:
        disk.close(deadline=5.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
