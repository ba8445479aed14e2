"""Carriers of agents to other hosts: srun, ssh or another client, a process whose standard streams are the wire."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from distdbg.launch.link.wire import CarrierWire
from distdbg.rundir import RunDir
from distdbg.whole_file import open_own

#: Variables that belong to a host or a session and not to a job.
_OF_THIS_HOST = re.compile(
    r"SSH_|XDG_|DBUS_|LC_|LS_COLORS$|HOME$|USER$|LOGNAME$|SHELL$|SHLVL$|MAIL$|PWD$|OLDPWD$|TERM|DISPLAY$|WAYLAND_|"
    r"XAUTHORITY$|HOSTNAME$|HOST$|TMPDIR$|TMUX|STY$|_$|PS1$|INVOCATION_ID$|JOURNAL_STREAM$"
)
#: What a host runs: see remote_agent.py.
AGENT = Path(__file__).resolve().with_name("remote_agent.py")
_ENDS_WITHIN_S = 2.0
_KEPT_OF_LOG = 2000
_MOST_SAID = 1 << 20
#: What srun says whenever a step ends early, behind why it does.
_NO_CAUSE = re.compile(
    r"lacks support for cpu binding|forcing job termination|Job step aborted: Waiting|Application launch failed|"
    r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*$"
)


def agent_command(run: RunDir, node_rank: int | str, python: str = sys.executable) -> list[str]:
    """The agent of one node. `node_rank` may be the name of a variable that has it on that host."""
    return [python, str(AGENT), "--remote", str(run.path), "--node-rank", str(node_rank)]


def environment_along() -> dict[str, str]:
    """This process's variables that another host does not have, and a job may need."""
    return {name: value for name, value in os.environ.items() if not _OF_THIS_HOST.match(name)}


@dataclass(frozen=True)
class Carrier:
    """A command that runs agents on other hosts: `nodes` are their ranks, `hosts` their names as far as known; `log`
    gets what it says on its standard error, where the ranks write, too, if nobody captures them: None for the
    terminal. `advice` is for who sees it end before an agent is up."""

    argv: Sequence[str]
    nodes: Sequence[int]
    hosts: Sequence[str]
    environment: Mapping[str, str]
    log: Path | None
    advice: str = "Try the same with a plain command: its words are the scheduler's or the client's own."


class Running:
    """A carrier that was started."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        ours, theirs = socket.socketpair()
        self._log_from = 0
        opened: contextlib.AbstractContextManager[IO[bytes] | None] = contextlib.nullcontext()
        if carrier.log:
            opened = os.fdopen(open_own(carrier.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
        with opened as log:
            self._log_from = log.tell() if log else 0
            self.process = subprocess.Popen(
                list(carrier.argv),
                env=dict(carrier.environment),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the launcher alone
            )
        theirs.close()
        self.wire = CarrierWire(ours)

    def last_words(self) -> str:
        """The end of what it said on its standard error, on one line; what names no cause only where nothing does."""
        if self.carrier.log is None:
            return "its messages are above"
        try:
            text = self.carrier.log.read_bytes()[-_KEPT_OF_LOG:].decode("utf-8", "replace")
        except OSError:
            text = ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        causes = [line for line in lines if not _NO_CAUSE.search(line)]
        return "; ".join((causes or lines)[-3:]) or "it said nothing"

    def said(self) -> str:
        """What this start of it said there: earlier attempts wrote into the same file."""
        if self.carrier.log is None:
            return ""
        try:
            with self.carrier.log.open("rb") as file:
                file.seek(max(self._log_from, file.seek(0, os.SEEK_END) - _MOST_SAID))
                return file.read(_MOST_SAID).decode("utf-8", "replace")
        except OSError:
            return ""


def end_carriers(carriers: Sequence[Running]) -> None:
    """SIGTERM makes srun end its step; one that waits for a dead node does not obey."""
    for running in carriers:
        running.process.terminate()
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while any(r.process.poll() is None for r in carriers) and time.monotonic() < deadline:
        time.sleep(0.02)
    for running in carriers:
        if running.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
