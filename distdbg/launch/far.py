"""From a plan for other hosts to the carriers and orders that carry it out there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.launch.far_nodes import Carrier, FarNodes, Meeting
from distdbg.launch.plan import FIRST_NODE, FIRST_PORT, Plan
from distdbg.launch.slurm.step import step_command, step_environment

if TYPE_CHECKING:
    from distdbg.launch.journal import Journal
    from distdbg.launch.nodes import Listener
    from distdbg.rundir import RunDir

_AGENT = Path(__file__).with_name("agent.py")


def far_nodes(
    plan: Plan,
    run: RunDir,
    own: Sequence[str],
    *,
    grace: float,
    journal: Journal,
    listener: Listener,
    say: Callable[[str], None],
) -> FarNodes:
    """`own` are the arguments that every agent gets."""
    attempt = run.attempt(int(own[own.index("--attempt") + 1]))
    return FarNodes(
        [_step(plan, run)],
        lambda meeting: _orders(plan, own, meeting),
        plan.place.port,
        grace=grace,
        journal=journal,
        listener=listener,
        say=say,
        dump=attempt.dump,
    )


def _step(plan: Plan, run: RunDir) -> Carrier:
    hosts = plan.place.hosts
    argv = step_command(run.path, _AGENT, hosts, plan.place.step)
    return Carrier(argv, range(len(hosts)), hosts, step_environment(os.environ), run.carrier_log)


def _orders(plan: Plan, own: Sequence[str], meeting: Meeting) -> dict[str, Any]:
    """The same for all nodes: each fills in what is its own."""
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    node = plan.nodes[0]
    words = [word.replace(FIRST_NODE, address).replace(FIRST_PORT, str(meeting.port)) for word in node.torchrun]
    return {
        "own": list(own),
        "torchrun": words,
        "environment": {variable.name: variable.value for variable in node.environment},
        "unset": list(node.unset),
    }
