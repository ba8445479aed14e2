"""Start the agents of a plan on other hosts, through command lines that run there: what such backends share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.launch.backends.carriers import Carrier
from distdbg.launch.backends.remote_nodes import Meeting, RemoteNodes
from distdbg.launch.link.liveness_port import own_addresses
from distdbg.launch.plan.job import FIRST_NODE, FIRST_PORT
from distdbg.launch.plan.quick_preflight import judged
from distdbg.protocol.requests import StartAgent

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Start
    from distdbg.protocol.message import Event
from distdbg.rundir import RunDir

#: Variables that belong to a host or a session and not to a job.
_OF_THIS_HOST = re.compile(
    r"SSH_|XDG_|DBUS_|LC_|LS_COLORS$|HOME$|USER$|LOGNAME$|SHELL$|SHLVL$|MAIL$|PWD$|OLDPWD$|TERM|DISPLAY$|WAYLAND_|"
    r"XAUTHORITY$|HOSTNAME$|HOST$|TMPDIR$|TMUX|STY$|_$|PS1$|INVOCATION_ID$|JOURNAL_STREAM$"
)
#: What a host runs: see remote_agent.py.
AGENT = Path(__file__).resolve().with_name("remote_agent.py")


def agent_command(run: RunDir, node_rank: int | str, python: str = sys.executable) -> list[str]:
    """The agent of one node. `node_rank` may be the name of a variable that has it on that host."""
    return [python, str(AGENT), "--remote", str(run.path), "--node-rank", str(node_rank)]


def environment_along() -> dict[str, str]:
    """This process's variables that another host does not have, and a job may need."""
    return {name: value for name, value in os.environ.items() if not _OF_THIS_HOST.match(name)}


def remote_nodes(
    start: Start,
    carriers: Sequence[Carrier],
    environment: Mapping[str, str],
    heard: Callable[[Sequence[str]], Iterable[Event]] | None = None,
) -> RemoteNodes:
    """`environment` goes with the orders to all agents, below the plan's own; `heard` is RemoteNodes'."""
    plan, run = start.plan, start.run

    def look_over(looked: dict[str, Any]) -> None:
        for told in judged(run, plan.place.on, looked):
            start.say(told)

    return RemoteNodes(
        carriers,
        lambda meeting, port: _orders(start, environment, meeting, port),
        plan.place.port,
        grace=start.grace,
        journal=start.journal,
        listener=start.listener,
        say=start.say,
        dump=run.attempt(start.attempt).dump,
        control=run.control,
        looked=look_over,
        heard=heard,
    )


def _orders(start: Start, environment: Mapping[str, str], meeting: Meeting, port: int) -> StartAgent:
    """The same for all nodes: each fills in what is its own."""
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    place, node = start.plan.place, start.plan.nodes[0]
    words = [word.replace(FIRST_NODE, address).replace(FIRST_PORT, str(meeting.port)) for word in node.torchrun]
    return StartAgent(
        own=list(start.own),
        torchrun=words,
        environment={**environment} | {variable.name: variable.value for variable in node.environment},
        cwd=str(place.container.folder if place.container else Path.cwd()),
        unset=list(node.unset),
        address=meeting.address,
        endpoints=[(own, port) for own in own_addresses()],
    )
