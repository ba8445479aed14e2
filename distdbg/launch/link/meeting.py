"""The handshake of an agent on another host: it reports its host, tests connections, and gets its arguments.

agent                                              launcher
here {host, addresses, liveness_port, sees_run, …} ->   waits for all nodes
place {port}                                       <-   host {port}: the first node listens
reached {address: why not}                         <-   reach {addresses, port}: the others try to connect
                                                   <-   start {own, torchrun, environment, unset, …}
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.launch.io.ports import ReservedPort
from distdbg.launch.link.liveness import LivenessPort, connect_all, listen, own_addresses
from distdbg.launch.link.wire import StdioWire
from distdbg.protocol.agent_events import Here, Place, Reached
from distdbg.protocol.requests import Kill, Listen, Reach, StartAgent, Stop, read_request

#: NFS shows a new directory to another host after its attribute time.
_SEES_WITHIN_S = 5.0
_PORTS_TRIED = 200
#: Words in torchrun's arguments that each node fills in for itself.
NODE_RANK, LOCAL_ADDRESS, IS_HOST = "@node-rank@", "@local-address@", "@is-host@"


@dataclass
class Orders:
    """`start` is the launcher's request; `own` are the agent's arguments and `torchrun` torchrun's, with what is this
    node's own. `rest` are the requests after it."""

    start: StartAgent
    own: list[str]
    torchrun: list[str]
    launcher_endpoints: list[tuple[str, int]]
    rest: list[dict[str, Any]]
    port: ReservedPort | None


def meet(wire: StdioWire, node_rank: int, run: Path, own_port: LivenessPort) -> Orders | None:
    """None where the launcher ended before it sent them."""
    wire.send(Here(liveness_port=own_port.port, more=_who(run)).record(time.time()))
    listening: socket.socket | None = None
    while not wire.closed:
        select.select([wire], [], [])
        requests = wire.receive()
        for number, request in enumerate(requests):
            match read_request(request, node_rank):
                case Listen(to=to, port=port) if to == node_rank:
                    listening = _listen_from(port)
                    wire.send(Place(port=listening.getsockname()[1]).record(time.time()))
                case Reach(addresses=addresses, port=port):
                    why_not = {at: why for (at, _), why in connect_all([(at, port) for at in addresses]).items()}
                    wire.send(Reached(why_not=why_not).record(time.time()))
                case StartAgent() as start:
                    return _orders(start, node_rank, requests[number + 1 :], _keep(listening))
                case Stop() | Kill():
                    return None
    return None


def host_name() -> str:
    """The host's name as Slurm has it, else its own."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _who(run: Path) -> dict[str, Any]:
    from distdbg.collect.machine.versions import torch_version
    from distdbg.collect.preflight.looking import look_alone

    deadline = time.monotonic() + _SEES_WITHIN_S
    while not (sees := (run / "control").exists()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return {
        "host": host_name(),
        "addresses": own_addresses(),
        "sees_run": sees,
        "looked": look_alone(run) if sees else {},
        "python": platform.python_version(),
        "torch": torch_version(),
    }


def _listen_from(port: int) -> socket.socket:
    """The first port that is free from this one on, else any."""
    for number in range(port, min(port + _PORTS_TRIED, 65536)):
        with contextlib.suppress(OSError):
            return listen(number)
    return listen(0)


def _keep(listening: socket.socket | None) -> ReservedPort | None:
    """The port was tried while it listened; from now on it is only kept for torchrun.

    What those who tried it have left may hold it for a minute (TIME_WAIT), which torchrun passes over, and we cannot.
    """
    if listening is None:
        return None
    number = int(listening.getsockname()[1])
    listening.close()
    with contextlib.suppress(OSError):
        return ReservedPort(number)
    return None


def _orders(request: StartAgent, node_rank: int, rest: list[dict[str, Any]], port: ReservedPort | None) -> Orders:
    own = {NODE_RANK: str(node_rank), IS_HOST: str(int(node_rank == 0))}
    # c10d deals out group ranks in the order of these words as text: a letter beyond f comes after every address
    own[LOCAL_ADDRESS] = request.address if node_rank == 0 else f"node{node_rank:06d}-{host_name()}"

    endpoints = [(str(address), int(str(port))) for address, port in request.endpoints]

    def fill(word: str) -> str:
        for name, value in own.items():
            word = word.replace(name, value)
        return word

    return Orders(
        start=request,
        own=[*request.own, "--node-rank", str(node_rank), "--host", host_name()],
        torchrun=[fill(word) for word in request.torchrun],
        # one that does not open now says nothing later
        launcher_endpoints=[endpoint for endpoint, why in connect_all(endpoints, 1.0).items() if why is None],
        rest=rest,
        port=port,
    )
