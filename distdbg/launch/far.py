"""From a plan for other hosts to the carriers and orders that carry it out there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.launch.carriers import Carrier
from distdbg.launch.far_nodes import FarNodes, Meeting
from distdbg.launch.plan import FIRST_NODE, FIRST_PORT, Plan
from distdbg.launch.preflight.cheap import judged
from distdbg.launch.slurm.step import step_command, step_environment
from distdbg.launch.ssh import ssh_command

if TYPE_CHECKING:
    from distdbg.launch.journal import Journal
    from distdbg.launch.nodes import Listener
    from distdbg.rundir import RunDir

#: Variables that belong to a host or a session and not to a job.
_OF_THIS_HOST = re.compile(
    r"SSH_|XDG_|DBUS_|LC_|LS_COLORS$|HOME$|USER$|LOGNAME$|SHELL$|SHLVL$|MAIL$|PWD$|OLDPWD$|TERM|DISPLAY$|WAYLAND_|"
    r"XAUTHORITY$|HOSTNAME$|HOST$|TMPDIR$|TMUX|STY$|_$|PS1$|INVOCATION_ID$|JOURNAL_STREAM$"
)
_TRY_THE_IMAGE = (
    "Try the image by hand: srun --container-image=IMAGE {python} -c 'import torch'. --container-python names another "
    "interpreter, --slurm container-mounts=… what else it needs."
)
_AGENT = Path(__file__).resolve().with_name("far_agent.py")


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

    def look_over(looked: dict[str, Any]) -> None:
        for told in judged(run, plan.place.on, looked):
            say(told)

    return FarNodes(
        _by_ssh(plan, run) if plan.place.on == "ssh" else [_step(plan, run, own)],
        lambda meeting: _orders(plan, own, meeting),
        plan.place.port,
        grace=grace,
        journal=journal,
        listener=listener,
        say=say,
        dump=attempt.dump,
        control=run.control,
        looked=look_over,
    )


def _step(plan: Plan, run: RunDir, own: Sequence[str]) -> Carrier:
    hosts = plan.place.hosts
    argv = step_command(run.path, _AGENT, hosts, plan.place.python, _inside(plan, run, own))
    advice = {"advice": _TRY_THE_IMAGE.format(python=plan.place.python)} if plan.place.container else {}
    return Carrier(argv, range(len(hosts)), hosts, step_environment(os.environ), _log(plan, run, "srun"), **advice)


def _inside(plan: Plan, run: RunDir, own: Sequence[str]) -> list[str]:
    """srun's options for the container, in which a node sees what its agent writes to."""
    if plan.place.container is None:
        return []
    figures = [Path(own[own.index("--prom-dir") + 1])] if "--prom-dir" in own else []
    return plan.place.container.step(run.path, *figures)


def _by_ssh(plan: Plan, run: RunDir) -> list[Carrier]:
    """One client a host, with the user's own configuration."""
    return [
        Carrier(
            ssh_command(host, [sys.executable, str(_AGENT), "--far", str(run.path), "--node-rank", str(node)], {}),
            (node,),
            (host,),
            os.environ,
            _log(plan, run, host),
        )
        for node, host in enumerate(plan.place.hosts)
    ]


def _log(plan: Plan, run: RunDir, which: str) -> Path | None:
    return run.carrier_log(which) if plan.capture else None


def _environment(plan: Plan) -> dict[str, str]:
    """srun brings the whole environment along, sshd next to nothing: there it goes with the orders, seen by nobody."""
    brought = {} if plan.place.on == "slurm" else {k: v for k, v in os.environ.items() if not _OF_THIS_HOST.match(k)}
    return brought | {variable.name: variable.value for variable in plan.nodes[0].environment}


def _orders(plan: Plan, own: Sequence[str], meeting: Meeting) -> dict[str, Any]:
    """The same for all nodes: each fills in what is its own."""
    address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
    node = plan.nodes[0]
    words = [word.replace(FIRST_NODE, address).replace(FIRST_PORT, str(meeting.port)) for word in node.torchrun]
    return {
        "own": list(own),
        "torchrun": words,
        "environment": _environment(plan),
        "cwd": str(plan.place.container.folder if plan.place.container else Path.cwd()),
        "unset": list(node.unset),
    }
