"""torchrun as the agent's child: start it, read it, pause it, end it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from distdbg.evidence.host.rank_processes import lets_rank_through
from distdbg.launch.io import processes
from distdbg.launch.io.ports import ReservedPort

_TORCHRUN = Path(__file__).with_name("torchrun.py")
_KEEP = 64 << 10  # of what torchrun says; its closing table is far shorter
#: One entry of torchrun's closing table of failures.
_FAILURE = re.compile(r"rank\s*: \d+ \(local_rank: (\d+)\)\s+exitcode\s*: (-?\d+) \(pid: \d+\)")


class TorchrunProcess:
    """`streams` are the descriptors to read what it says from; empty where it has the terminal (no capture).

    `handles` are the names of the signals that end its ranks.
    """

    def __init__(
        self,
        argv: list[str],
        node_dir: Path,
        run_dir: Path,
        *,
        capture: bool,
        stdin: str,
        handles: Set[str],
    ) -> None:
        self.argv = argv
        self.handles = handles & {number.name for number in signal.Signals}
        environment = os.environ | {"DISTDBG_NODE_DIR": str(node_dir), "DISTDBG_RUN_DIR": str(run_dir)}
        reader, writer = os.pipe2(os.O_CLOEXEC) if capture else (-1, -1)
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, str(_TORCHRUN), *argv],
            env=environment,
            stdin=None if stdin == "inherit" else subprocess.DEVNULL,
            stdout=writer if capture else None,
            stderr=writer if capture else None,
            preexec_fn=lambda: processes.die_with_parent(parent),  # noqa: PLW1509 -- the agent has no thread yet
        )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self.exit_code: int | None = None
        self.silent = not capture
        self.tail = b""
        self.streams: list[int] = []
        if capture:
            os.close(writer)
            os.set_blocking(reader, False)
            self.streams = [reader]

    def read(self, stream: int) -> bytes:
        """What it said since; empty where nothing is there now and at the end, which makes it `silent`."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(stream, 1 << 16)
            self.silent = not data
            self.tail = (self.tail + data)[-_KEEP:]
            return data
        return b""

    def reported(self) -> dict[int, int]:
        """Local rank -> exit code, from the table that torchrun prints at the end; empty where it printed none."""
        text = self.tail.decode("utf-8", "replace")
        return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}

    def hold(self) -> None:
        """Stop it for a moment, so that it does not end the ranks that we are asking."""
        processes.kill(self.pid, signal.SIGSTOP)

    def release(self) -> None:
        processes.kill(self.pid, signal.SIGCONT)

    def terminate(self, reason: str) -> None:
        """Send torchrun the signal that the reason names, if it handles that signal; it sends the same to its ranks.

        Ctrl-C (SIGINT) and any other reason ask for a clean end: SIGTERM.
        """
        as_it_came = reason in self.handles and reason != "SIGINT"
        processes.kill(self.pid, signal.Signals[reason] if as_it_came else signal.SIGTERM)
        self.release()

    def kill(self) -> None:
        processes.kill(self.pid, signal.SIGKILL)

    def collect(self) -> None:
        self.exit_code = self._process.wait()
        os.close(self.pidfd)


_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


class RankVariables:
    """Decides which of torchrun's variables a program gets instead of a script (`--no-python`, one rank in all).

    torchrun says to every child that it is a rank, whose store torchrun serves. The ranks that a launcher or a script
    starts by itself would believe that.
    """

    def __init__(self, torchrun: Sequence[str]) -> None:
        words = list(torchrun)
        at = words.index("--") if "--" in words else len(words)
        #: The command of --no-python; empty for a script.
        self._program = tuple(words[at + 1 :]) if "--no-python" in words[:at] else ()
        self._port: ReservedPort | None = None

    def changes(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """What to change in the variables of a child; None takes a variable away.

        A program may be the one rank, or start ranks in whatever way: it gets a port of its own, where the first rank
        serves the store as it does without torchrun. mpirun gets none of the variables: all its ranks would have the
        same RANK.
        """
        if not self._program or given.get("WORLD_SIZE") != "1":
            return {}
        if lets_rank_through(self._program):
            return dict.fromkeys(given)
        if given.get(_AGENT_STORE) != "True":
            return {}
        self._port = self._port or ReservedPort()
        return {_AGENT_STORE: None, "MASTER_PORT": str(self._port.number)}
