"""From settings to command lines: what exactly will run, on which node, with which environment. Pure.

`--dry-run` prints a plan; the backends carry one out.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg.launch.env_lint import lint
from distdbg.launch.environment import Variable, resolve
from distdbg.launch.topology import MachineFacts, Shares, share_out
from distdbg.settings import JobSettings

BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
#: torchrun flags that mean "this is one node of N": the rendezvous is the user's.
_ONE_OF_N = ("rdzv-endpoint", "node-rank", "master-addr")
#: Flags that this file writes itself and so takes out of what is passed through.
_OURS = ("module", "no-python", "tee", "redirects", "local-ranks-filter")


@dataclass(frozen=True)
class NodePlan:
    """`torchrun` are its arguments, the program last; `unset` are variables that the node must not inherit."""

    node_rank: int
    torchrun: tuple[str, ...]
    environment: tuple[Variable, ...]
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    nodes: tuple[NodePlan, ...]
    topology: dict[str, Any]
    program: tuple[str, ...]
    worker_side: str
    capture: bool
    inherit_stdin: bool
    show_ranks: str
    rank_env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_one_of_many(settings: JobSettings) -> bool:
    """Whether the user brings the rendezvous: Kubernetes, plain machines, one launch a node."""
    flags = settings.torchrun
    foreign = flags.get("rdzv-backend", "c10d") not in ("c10d", "static")
    return foreign or any(name in flags for name in _ONE_OF_N) or ":" in flags.get("nnodes", "")


def make_plan(
    settings: JobSettings, environ: Mapping[str, str], machine: MachineFacts, *, port: int, run_id: str, env_origin: str
) -> Plan:
    """The whole plan. `port` is one reserved for the rendezvous. Raises UsageError for what cannot be."""
    single = is_one_of_many(settings)
    local = settings.model_copy(update={"nodes": 1}) if single else settings
    shares = share_out(local, machine, environ)
    variables, notes = resolve(settings.presets, settings.env, env_origin, environ, machine.torch)
    notes += lint({**environ, **settings.env})
    common = [v for v in variables if not v.per_rank]
    if shares.omp_threads is not None and "OMP_NUM_THREADS" not in settings.env:
        common.append(Variable("OMP_NUM_THREADS", str(shares.omp_threads), "distdbg: CPUs shared out over the ranks"))
        notes.append(f"OMP_NUM_THREADS={shares.omp_threads}: {machine.cpus} CPUs shared out over the ranks here")
    if not single and local.nodes > 1 and int(settings.torchrun.get("max-restarts", "0") or 0) > 0:
        why = "distdbg: restarts over several nodes fail with a shared store (torch 2.13)"
        common.append(Variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", why))
    program = _program(settings)
    nodes = tuple(
        NodePlan(n, (*_arguments(settings, shares, n, port, run_id), *program), _node_environment(common, shares, n))
        for n in range(local.nodes)
    )
    return Plan(
        nodes=nodes,
        topology={
            "on": "local",
            "nodes": local.nodes,
            "nproc_per_node": shares.nproc_per_node,
            "world_size": None if single else local.nodes * shares.nproc_per_node,
            "one_of_many": single,
            "gpus": [list(g) for g in shares.gpus] or [list(machine.gpus)],
        },
        program=program,
        worker_side="off" if settings.command or settings.worker_side == "off" else "on",
        capture=settings.capture and settings.torchrun.get("logs-specs") is None,
        inherit_stdin=len(nodes) == 1,
        show_ranks=_show(settings),
        rank_env={v.name: v.value for v in variables if v.per_rank},
        notes=tuple(notes),
    )


def _program(settings: JobSettings) -> tuple[str, ...]:
    arguments = tuple(settings.args)
    if settings.command:
        return ("--no-python", "--", settings.command, *arguments)
    if settings.worker_side == "off" or "run-path" in settings.torchrun:
        return ("--module", settings.module, *arguments) if settings.module else (settings.program, *arguments)
    module = ("-m", settings.module) if settings.module else (settings.program,)
    return (str(BOOT), *module, *arguments)


def _arguments(settings: JobSettings, shares: Shares, node: int, port: int, run_id: str) -> tuple[str, ...]:
    given = dict(settings.torchrun)
    flags: dict[str, str] = {}
    if is_one_of_many(settings):
        flags["nnodes"] = given.get("nnodes") or str(settings.nodes)
    else:
        flags["nnodes"] = str(settings.nodes)
        if "standalone" not in given:
            flags |= _rendezvous(given, node, settings.nodes, port, run_id)
    flags["nproc-per-node"] = str(shares.nproc_per_node)
    if settings.capture and "logs-specs" not in given:
        flags["logs-specs"] = "distdbg"
    passed = {name: value for name, value in given.items() if name not in _OURS and name not in flags}
    words: list[str] = []
    for name, value in (flags | passed).items():
        words += [f"--{name}", value] if value or name in flags else [f"--{name}"]
    return tuple(words)


def _rendezvous(given: Mapping[str, str], node: int, nodes: int, port: int, run_id: str) -> dict[str, str]:
    """One c10d store, held by the first node's torchrun; told, not guessed, because all nodes are one host."""
    conf = f"is_host={int(node == 0)}" + (f",{given['rdzv-conf']}" if given.get("rdzv-conf") else "")
    flags = {
        "rdzv-backend": "c10d",
        "rdzv-endpoint": f"127.0.0.1:{given.get('master-port') or port}",
        "rdzv-id": run_id,
        "local-addr": _local_address(node, nodes),
    }
    return {**flags, **{k: v for k, v in given.items() if k in flags and k != "rdzv-backend"}, "rdzv-conf": conf}


def _local_address(node: int, nodes: int) -> str:
    """c10d deals out group ranks in the order of the nodes' addresses, as text: each node gets one that sorts."""
    return "127.0.0.1" if nodes == 1 else f"127.0.{100 + node // 100}.{100 + node % 100}"


def _node_environment(common: list[Variable], shares: Shares, node: int) -> tuple[Variable, ...]:
    if not shares.gpus:
        return tuple(common)
    dealt = Variable("CUDA_VISIBLE_DEVICES", ",".join(shares.gpus[node]), "distdbg: GPUs dealt out over local nodes")
    return (*common, dealt)


def _show(settings: JobSettings) -> str:
    """torchrun's -t and -r keep their meaning: what is teed is shown, what is redirected is not."""
    if "show_ranks" in settings.model_fields_set:
        return settings.show_ranks
    if settings.torchrun.get("tee", "0") != "0":
        return settings.torchrun.get("local-ranks-filter") or "all"
    return "none" if settings.torchrun.get("redirects", "0") == "3" else settings.show_ranks


def render_dry_run(plan: Plan) -> str:
    """Shell that does what the launch would do, less the watching: each variable with its origin."""
    lines = [f"# {note}" for note in plan.notes]
    for node in plan.nodes:
        lines.append(f"# node {node.node_rank}")
        lines.append("(")
        lines += [f"export {v.name}={shlex.quote(v.value)}  # {v.origin}" for v in node.environment]
        lines += [f"# {name}={value} for each rank  # preset" for name, value in plan.rank_env.items()]
        words = [w for i, w in enumerate(node.torchrun) if not _is_log_flag(node.torchrun, i)]
        command = shlex.join([sys.executable, "-m", "torch.distributed.run", *words])
        lines += [command, ") &" if len(plan.nodes) > 1 else ")"]
    return "\n".join([*lines, *(["wait"] if len(plan.nodes) > 1 else [])])


def _is_log_flag(words: tuple[str, ...], i: int) -> bool:
    """Without our agent there is nobody to take the ranks' output: torchrun prints it."""
    return words[i : i + 2] == ("--logs-specs", "distdbg") or words[max(i - 1, 0) : i + 1] == (
        "--logs-specs",
        "distdbg",
    )
