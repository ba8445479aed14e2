"""The parent of an agent on another host: if the agent is killed, it ends the ranks and informs the launcher.

Slurm follows the processes of a step by their parents: an orphan that process 1 adopts has escaped it, and holds the
job "completing" for a minute. Below a subreaper none escapes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import traceback
from collections.abc import Callable

from distdbg.collect.machine import procfs
from distdbg.evidence.exit_status import shell_code
from distdbg.launch.io import processes
from distdbg.launch.link.wire import fragments
from distdbg.protocol.agent_events import AgentDied

_LEFT_ALONE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
#: torchrun is asked to end when its agent dies, and ends its ranks.
_MAY_END_S = 3.0
_KILLED_WITHIN_S = 5.0


def keep(node_rank: int, agent: Callable[[int], int]) -> int:
    """Run `agent(pid of its parent)` in a child; its exit code, 128+N where signal N ended it.

    Called before any thread exists. What signals say is the agent's business: Slurm sends them to both.
    """
    processes.become_subreaper()
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = agent(keeper)
        except BaseException:  # its last words: standard error is the carrier's log
            traceback.print_exc()
        finally:
            os._exit(code)
    for number in _LEFT_ALONE:
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        message = json.dumps(AgentDied(exit_code=code).record(time.time())).encode()
        with contextlib.suppress(OSError):
            os.set_blocking(1, True)
            # The agent may have died in the middle of a line: an empty one ends it.
            os.write(1, b"\n" + fragments(node_rank, message))
    _end_orphans()
    return shell_code(code)


def _end_orphans() -> None:
    begun = time.monotonic()
    while left := procfs.children(os.getpid()):
        processes.reap_adopted(set())
        waited = time.monotonic() - begun
        for pid in left if waited > _MAY_END_S else ():
            processes.kill(pid, signal.SIGCONT)
            processes.kill_group(pid, signal.SIGKILL)
        if waited > _MAY_END_S + _KILLED_WITHIN_S:
            return  # in the kernel, on a file system that does not answer
        time.sleep(0.02)
