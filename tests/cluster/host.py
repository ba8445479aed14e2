"""One host: network, PID, UTS, IPC and mount namespaces that live as long as the process that holds them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What every host sees beside its caller's own variables, none of which it inherits.
PLAIN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
}
_APART = ("--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc")
_UP_WITHIN_S = 10.0


@dataclass(frozen=True)
class Host:
    """`holder` is unshare, outside; `init` is the host's process 1 as the machine counts, its end is the host's."""

    name: str
    address: str
    holder: int
    init: int

    def enter(self, *command: str) -> list[str]:
        """The command line that runs `command` inside."""
        return ["nsenter", "-t", str(self.init), "-n", "-u", "-i", "-m", "-p", "--", *command]

    def popen(
        self, *command: str, env: Mapping[str, str] | None = None, user: int | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command here, with a plain environment and `env`; `user` is a numeric id, root's by default."""
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(
            self.enter(*_as_user(user), *command), env={**PLAIN_ENVIRONMENT, **(env or {})}, **options
        )

    def run(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        timeout: float = 60,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """To the end, with its output as text; both streams apart."""
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            self.enter(*_as_user(user), *command),
            env={**PLAIN_ENVIRONMENT, **(env or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            **options,
        )

    @property
    def alive(self) -> bool:
        return _living(self.init)

    def processes(self) -> dict[int, str]:
        """What runs here, by the machine's pids: pid -> command line. Process 1 and nsenter are left out."""
        found = {}
        for pid in members(self.init):
            if pid not in (self.init, self.holder) and (line := _command(pid)):
                found[pid] = line
        return found

    def pids_of(self, words: str, *, but: str = "\0") -> list[int]:
        """Of processes here whose command line has these words and not those."""
        return [pid for pid, line in self.processes().items() if words in line and but not in line]


def _as_user(user: int | None) -> tuple[str, ...]:
    if user is None:
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--")


def hold(name: str, address: str, *, apart: Sequence[str] = _APART) -> Host:
    """Make the namespaces. Raises RuntimeError where the kernel or the user may not."""
    # SIGCHLD ignored: as process 1 it adopts orphans, and the kernel reaps them unasked
    holder = subprocess.Popen(
        ["unshare", *apart, "--fork", "--kill-child=KILL", "env", "--ignore-signal=CHLD", "sleep", "infinity"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < deadline and holder.poll() is None:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        # only after its exec is everything in place
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
            return Host(name, address, holder.pid, int(children[0]))
        time.sleep(0.002)
    holder.kill()
    said = holder.stderr.read().decode(errors="replace").strip() if holder.stderr else ""
    raise RuntimeError(f"no namespaces for {name}: {said or 'unshare did not get ready'}")


def members(init: int) -> list[int]:
    """Processes of a host, and those outside that brought one in (their children are born there)."""
    try:
        space = os.readlink(f"/proc/{init}/ns/pid")
        if space == os.readlink("/proc/self/ns/pid"):
            return []
    except OSError:
        return []
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/ns/pid_for_children") == space:
                found.append(int(entry))
        except OSError:
            continue  # it ended meanwhile
    return found


def end(init: int, holder: int) -> None:
    """Kill all of a host at once, and those outside that wait for something inside."""
    around = members(init)
    for pid in (init, *around, holder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + 5
    while (_living(holder) or _living(init)) and time.monotonic() < deadline:
        try:
            os.waitpid(holder, os.WNOHANG)
        except ChildProcessError:
            pass  # another process made it, and reaps it
        time.sleep(0.002)


def _living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
