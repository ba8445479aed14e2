"""Turn settings into command lines: what exactly will run, on which node, with which environment. Pure.

`--dry-run` prints a plan (dry_run.py); the backends carry one out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from distdbg.errors import UsageError
from distdbg.launch.link.meeting import IS_HOST, LOCAL_ADDRESS, NODE_RANK
from distdbg.launch.plan.environment import Variable, lint, resolve
from distdbg.launch.plan.place import LOCAL, Location
from distdbg.launch.plan.terminal_ranks import check_named_ranks, shown_ranks
from distdbg.launch.plan.topology import MachineFacts, Shares, share_out
from distdbg.launch.plan.torchrun_flags import KILLS_AFTER_S, SWITCH_VARIABLES, check_values, is_one_of_many
from distdbg.protocol import chosen_ranks
from distdbg.settings import JobSettings
from distdbg.worker.guards import VARIABLE as GUARDS_VARIABLE

#: Stand in the plan of nodes that have not met: the launcher fills them in when they have.
FIRST_NODE, FIRST_PORT = "@first-node@", "@first-port@"
BOOT = Path(__file__).resolve().parents[2] / "worker" / "boot.py"
#: Flags that this file writes itself and so takes out of what is passed through.
_WRITTEN = ("module", "no-python")
#: Whose output is shown: with our capture the console's business, without it torchrun's.
_STREAMS = ("tee", "redirects", "local-ranks-filter")
#: With these torchrun keeps the logs: it copies lines out of its own files, and redirects to files that can seek.
_TORCHRUN_LOGS = ("logs-specs", "duplicate-stdout-filters", "duplicate-stderr-filters", "run-path")


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
    place: Location = LOCAL
    rank_env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def make_plan(
    settings: JobSettings,
    environ: Mapping[str, str],
    machine: MachineFacts,
    *,
    port: int,
    run_id: str,
    origins: Mapping[str, str],
    place: Location = LOCAL,
    notes: Sequence[str] = (),
) -> Plan:
    """The whole plan. `port` is one reserved for the rendezvous, `origins` are settle()'s; `machine` is one node of
    `place`, and `notes` go before the plan's own.

    Raises UsageError for what cannot be.
    """
    settings = _checked(settings)
    foreign = is_one_of_many(settings.torchrun)
    alone = foreign or place.remote
    shares = share_out(settings.model_copy(update={"nodes": 1}) if alone else settings, machine, environ)
    variables, found = resolve(settings.presets, settings.env, origins, environ, machine.torch)
    notes = [*notes, *found]
    notes += [
        *_shrunk(settings),
        *([f"THE FIRST BATCH IS REPEATED for {settings.overfit_batch} steps, then the script is ended "
           "(--overfit-batch): what it saves meanwhile is of no use"] if settings.overfit_batch else []),
        *lint({**environ, **settings.env}, machine.torch),
        *shares.notes,
    ]  # fmt: skip
    unset = tuple(name for name in SWITCH_VARIABLES if name in environ)
    common = [v for v in variables if not v.per_rank and v.name not in unset] + _of_ours(settings, shares, environ)
    program = _program(settings)
    nodes = []
    for node in range(1 if foreign else settings.nodes):
        environment = common
        if shares.gpus:
            visible = ",".join(shares.gpus[node])
            dealt = Variable("CUDA_VISIBLE_DEVICES", visible, "distdbg: GPUs dealt out over local nodes")
            environment = [*(v for v in common if v.name != dealt.name), dealt]
        rendezvous = _rendezvous(settings, place, node, port, run_id)
        words = (*_arguments(settings, shares, rendezvous), *program)
        nodes.append(NodePlan(node, words, tuple(environment), unset))
    topology = _topology(settings, shares, place)
    chosen = chosen_ranks.chosen_ranks(environ.get(chosen_ranks.VARIABLE))
    if chosen is not None:
        topology[chosen_ranks.KEY] = chosen.text
    check_named_ranks(settings, topology["world_size"] if chosen is None else chosen.size)
    capture = _captures(settings)
    if settings.capture and not capture:
        notes.append(
            "torchrun keeps the logs, as its flags ask: this run has none of them, and shows what torchrun shows"
        )
    return Plan(
        nodes=tuple(nodes),
        topology=topology,
        program=program,
        worker_side="on" if str(BOOT) in program[:1] else "off",
        capture=capture,
        inherit_stdin=len(nodes) == 1 and not place.remote,
        show_ranks=shown_ranks(settings, len(nodes), shares.nproc_per_node, elsewhere=topology["one_of_many"]),
        place=place,
        rank_env={v.name: v.value for v in variables if v.per_rank},
        notes=tuple(notes),
    )


def _checked(settings: JobSettings) -> JobSettings:
    """What only all settings together show to be wrong; `--nnodes 2:2` is `--nodes 2`."""
    check_values(settings.torchrun)
    flags = dict(settings.torchrun)
    low, _, high = flags.get("nnodes", "").partition(":")
    if high and int(low) == int(high):
        del flags["nnodes"]
        settings = settings.model_copy(update={"nodes": int(low), "torchrun": flags})
    static = flags.get("rdzv-backend", "static") == "static" and not {"nnodes", "standalone"} & set(flags)
    if static and (rank := int(flags.get("node-rank", "0"))) >= settings.nodes:
        # torchrun would wait for a quarter of an hour
        message = f"--node-rank {rank} is none of {settings.nodes} nodes"
        raise UsageError(message, f"They are 0 to {settings.nodes - 1}; how many there are says --nnodes.")
    if settings.nodes > 1 and "standalone" in flags:
        raise UsageError(f"--standalone is one node, and {settings.nodes} are asked for", "Leave one of them out.")
    return settings


def _of_ours(settings: JobSettings, shares: Shares, environ: Mapping[str, str]) -> list[Variable]:
    """Variables derived from the topology; the user has set none of these."""
    found: list[Variable] = []
    if shares.omp_threads is not None:
        found.append(Variable("OMP_NUM_THREADS", str(shares.omp_threads), "distdbg: CPUs shared out over the ranks"))
    asked = (
        ("DISTDBG_MEMORY", "on" if settings.memory or settings.memory_steps else "", "--memory"),
        ("DISTDBG_MEMORY_STEPS", settings.memory_steps, "--memory-steps"),
        ("DISTDBG_WATCH", ",".join(settings.watch), "--watch"),
        ("DISTDBG_ON_NONFINITE", "dump" if settings.on_nonfinite == "dump" else "", "--on-nonfinite"),
        ("DISTDBG_PROFILE", settings.profile, "--profile"),
        ("DISTDBG_PROFILE_RANKS", settings.profile_ranks if settings.profile_ranks != "all" else "", "--profile-ranks"),
        ("DISTDBG_OVERFIT_BATCH", settings.overfit_batch, "--overfit-batch"),
        (GUARDS_VARIABLE, ",".join(f"{name}={mode}" for name, mode in settings.guards.items()), "--guard"),
    )
    found += [Variable(name, str(value), f"distdbg: {option}") for name, value, option in asked if value]
    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"  # not the flag: a torch that has none refuses it
    theirs = "shutdown-timeout" in settings.torchrun or name in {**environ, **settings.env}
    if settings.grace > KILLS_AFTER_S and not theirs:
        found.append(Variable(name, str(ceil(settings.grace)), "distdbg: --grace"))
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    several = settings.nodes > 1 and not is_one_of_many(settings.torchrun)
    restarts = several and int(settings.torchrun.get("max-restarts", "0"))
    if restarts and name not in {**environ, **settings.env}:
        found.append(Variable(name, "1", "distdbg: restarts over several nodes fail with a shared store (torch 2.13)"))
    shrunk = (("DISTDBG_KEEP_LAYERS", settings.keep_layers), ("DISTDBG_SKIP_ATTENTION", settings.skip_attention),
              ("DISTDBG_FULL_LOAD", int(settings.full_load)))  # fmt: skip
    for variable, value in shrunk:
        found += [Variable(variable, str(value), "distdbg: the model is made smaller, as asked")] if value else []
    return found


def _shrunk(settings: JobSettings) -> list[str]:
    asked = [f"--{name.replace('_', '-')} {value}" for name in ("keep_layers", "skip_attention")
             if (value := getattr(settings, name))]  # fmt: skip
    asked += ["--full-load"] if settings.full_load else []
    return [f"THE MODEL IS MADE SMALLER ({' '.join(asked)}): what it computes is not what it would be"] if asked else []


def _topology(settings: JobSettings, shares: Shares, place: Location) -> dict[str, Any]:
    """The topology for job.json. `world_size` is None where it is not known here."""
    foreign, nproc = is_one_of_many(settings.torchrun), shares.nproc_per_node
    many = foreign and (settings.nodes > 1 or "nnodes" in settings.torchrun)
    return {
        "on": place.on,
        "nodes": 1 if foreign else settings.nodes,
        "nproc_per_node": nproc,
        "world_size": None if many or nproc is None else settings.nodes * nproc,
        "one_of_many": many,
        "gpus": [list(share) for share in shares.gpus] or [list(shares.visible)],
    } | ({"hosts": list(place.hosts), "job_id": place.job_id} if place.remote else {})


def _captures(settings: JobSettings) -> bool:
    return settings.capture and not any(name in settings.torchrun for name in _TORCHRUN_LOGS)


def _watches(settings: JobSettings) -> bool:
    """Whether torchrun reports its ranks to our agent; without capture only if torchrun writes no logs of its own."""
    theirs = (*_TORCHRUN_LOGS, *_STREAMS, "log-dir")
    return _captures(settings) or not any(name in settings.torchrun for name in theirs)


def _program(settings: JobSettings) -> tuple[str, ...]:
    """The end of torchrun's command line. `--` precedes the user's program: argparse would take one of its
    arguments."""
    arguments = tuple(settings.args)
    if settings.command:
        return ("--no-python", "--", settings.command, *arguments)
    if settings.worker_side == "off" or "run-path" in settings.torchrun:
        return (*(("--module",) if settings.module else ()), "--", settings.program, *arguments)
    module = ("-m", settings.module) if settings.module else (settings.program,)
    return (str(BOOT), *module, *arguments)


def _arguments(settings: JobSettings, shares: Shares, rendezvous: Mapping[str, str]) -> tuple[str, ...]:
    given = settings.torchrun
    flags: dict[str, str] = {"nnodes": given.get("nnodes") or str(settings.nodes)}
    if not is_one_of_many(settings.torchrun) and "standalone" not in given:
        flags |= rendezvous
    flags["nproc-per-node"] = shares.nproc
    ours: tuple[str, ...] = _WRITTEN
    if _watches(settings):
        flags["logs-specs"] = "distdbg"
        ours += _STREAMS
    passed = {name: value for name, value in given.items() if name not in ours and name not in flags}
    words: list[str] = []
    for name, value in (flags | passed).items():
        words += (
            [f"--{name}", value] if value and not value.startswith("-") else [f"--{name}" + (value and f"={value}")]
        )
    return tuple(words)


def _rendezvous(settings: JobSettings, place: Location, node: int, port: int, run_id: str) -> dict[str, str]:
    """One store, held by the first node's torchrun. On this machine nothing has to be found out, because all nodes are
    one host; elsewhere the agents fill in these words."""
    given = settings.torchrun
    rank, is_host, first, own_address = str(node), str(int(node == 0)), "127.0.0.1", _address(node, settings.nodes)
    number = str(port)
    if place.remote:
        rank, is_host, first, own_address, number = NODE_RANK, IS_HOST, FIRST_NODE, LOCAL_ADDRESS, FIRST_PORT
    own = {"rdzv-id": given.get("rdzv-id") or run_id, "local-addr": given.get("local-addr") or own_address}
    if _is_static(given, settings.nodes):
        master = {"node-rank": rank, "master-addr": first, "master-port": given.get("master-port", number)}
        return {"rdzv-backend": "static", **master, **own}
    conf = f"is_host={is_host}" + (f",{given['rdzv-conf']}" if given.get("rdzv-conf") else "")
    return {"rdzv-backend": "c10d", "rdzv-endpoint": f"{first}:{number}", **own, "rdzv-conf": conf}


def _is_static(given: Mapping[str, str], nodes: int) -> bool:
    """Only the static rendezvous gives the ranks the port that --master-port names; it restarts one node at most."""
    if "rdzv-backend" in given:
        return given["rdzv-backend"] == "static"
    return "master-port" in given and (nodes == 1 or given.get("max-restarts", "0") == "0")


def _address(node: int, nodes: int) -> str:
    """c10d deals out group ranks in the order of the nodes' addresses, as text: each node gets one that sorts."""
    return "127.0.0.1" if nodes == 1 else f"127.0.{100 + node // 100}.{100 + node % 100}"
