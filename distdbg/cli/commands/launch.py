"""`distdbg launch` (run): run a script on every rank, in place of torchrun."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdbg.cli.epilog import LAUNCHES, examples, exits
from distdbg.cli.options import BackendChoice
from distdbg.launch.plan.torchrun_flags import FLAGS, OTHER, check_names, from_environment, grace_note, normalise

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend
    from distdbg.rundir import RunDir
    from distdbg.settings import JobSettings

#: Options of ours whose name is also a key of the job file.
_KEYS = ("name", "nodes", "on", "show_ranks", "capture", "worker_side", "run_dir", "grace", "hang_timeout",
         "startup_timeout", "on_hang", "on_finding", "keep_layers", "full_load", "skip_attention", "memory",
         "memory_steps", "watch", "on_nonfinite", "profile", "profile_ranks", "overfit_batch", "prom_dir",
         "metrics_port")  # fmt: skip
#: The same for the keys below `slurm`.
_SLURM_KEYS = ("partition", "time", "account", "qos", "gpus_per_node", "constraint", "container_image",
               "container_python", "template", "signal_before", "on_preempt", "max_requeues",
               "exclude_culprit")  # fmt: skip
_SLURM_SECTION = (*_SLURM_KEYS, "slurm_options", "detach")


class LaunchCommand(click.Command):
    """Reads torchrun's spellings, and shows torchrun's flags in a section of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, normalise(args, self.takes_value() | {"--help": False, "-h": False}))

    def takes_value(self) -> dict[str, bool]:
        """Whether each option of ours takes a value, by its spellings."""
        return {
            name: not option.is_flag for option in self._options() for name in (*option.opts, *option.secondary_opts)
        }

    def _options(self) -> list[click.Option]:
        return [p for p in self.params if isinstance(p, click.Option) and not p.name.startswith("torchrun_")]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for option in self._options():
            if record := option.get_help_record(ctx):
                sections[option.name in _SLURM_SECTION].append(record)
        with formatter.section("Options"):
            formatter.write_dl([*sections[False], ("-h, --help", "Show this and exit.")])
        with formatter.section("For a job that is submitted to Slurm"):
            formatter.write_dl(sections[True])
        with formatter.section("torchrun's own, with the meaning they have there"):
            formatter.write_dl([(_spelling(flag.name, flag.short, flag.takes_value), flag.help) for flag in FLAGS])


def _spelling(name: str, short: str | None, takes_value: bool) -> str:
    return (f"-{short}, " if short else "") + f"--{name}" + (" VALUE" if takes_value else "")


_TORCHRUN_OPTIONS: list[click.Parameter] = [
    click.Option([f"--{f.name}", f"torchrun_{f.name.replace('-', '_')}"], is_flag=not f.takes_value, default=None)
    for f in FLAGS
]


@exits(LAUNCHES, of_job=True)
@examples(
    "distdbg launch --nproc-per-node 4 train.py --lr 1e-3",
    "distdbg launch --nodes 2 -m package.train",
    "distdbg launch --no-python accelerate launch train.py",
)
@click.command(
    cls=LaunchCommand,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("--nodes", metavar="N", help="Number of nodes; on one machine, one torchrun for each.  [default: 1]")
@click.option("--on", type=BackendChoice(), help="Where to run.  [default: auto]")
@click.option("--hosts", metavar="A,B|FILE", help="Hosts to reach by ssh, or a file with one host per line.")
@click.option("--name", help="Name of the run, for its directory.")
@click.option("--config", "config", type=click.Path(path_type=Path), metavar="FILE", help="A job file (YAML).")
@click.option("--preset", "presets", multiple=True, metavar="NAME", help="A set of variables; see `distdbg env`.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable for the ranks.")
@click.option("--show-ranks", metavar="RANKS", help="Ranks whose output is shown: 0-3,8, all or none.  [default: 0]")
@click.option("--no-capture", "capture", flag_value=False, default=None, help="Give the ranks the terminal.")
@click.option("--worker-side", type=click.Choice(["on", "off"]), help="distdbg's code in the ranks.  [default: on]")
@click.option(
    "--guard", "guards", multiple=True, metavar="ID=MODE", help="off, warn, fix, error; see `distdbg guards`."
)
@click.option(
    "--memory", is_flag=True, default=None, help="Record the memory of each rank, and a snapshot when it runs out."
)
@click.option("--memory-steps", metavar="A:B", help="Take a memory snapshot of each rank at the end of these steps.")
@click.option("--watch", metavar="LEVELS", help="One or more of numerics,gradients,shapes,compile (docs/watch.md).")
@click.option("--on-nonfinite", type=click.Choice(["report", "dump"]),
              help="dump: save the batch and the model for `distdbg replay`.  [default: report]")  # fmt: skip
@click.option(
    "--profile", metavar="A:B", help="Run these steps under torch.profiler; read the traces with `distdbg profile`."
)
@click.option("--profile-ranks", metavar="RANKS", help="Ranks to profile: 0-3,8 or all.  [default: all]")
@click.option(
    "--overfit-batch", metavar="N", help="Repeat the first batch for N steps, and report whether the loss falls."
)
@click.option(
    "--prom-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write metrics for node_exporter into DIR."
)
@click.option("--metrics-port", metavar="PORT", help="Serve metrics for Prometheus on loopback, at /metrics.")
@click.option("--run-dir", type=click.Path(path_type=Path), metavar="DIR", help="A new directory for this run.")
@click.option("--grace", metavar="SECONDS", help="Time between SIGTERM and SIGKILL.  [default: 30]")
@click.option(
    "--hang-timeout",
    metavar="SECONDS",
    help="Time without progress, from the start of the ranks on, that counts as a hang; or auto, off.  [default: auto]",
)
@click.option(
    "--startup-timeout", metavar="SECONDS", help="Another timeout before the first step; or auto.  [default: auto]"
)
@click.option(
    "--on-hang",
    type=click.Choice(["report", "kill", "restart"]),
    help="What to do with a hung job after the report.  [default: report]",
)
@click.option("--keep-layers", metavar="N", help="Build only the first N layers of a transformers model.")
@click.option("--full-load", "--keep-collectives", "full_load", is_flag=True, default=None,
              help="Load all layers; a layer not kept passes its input on; all collectives run.")  # fmt: skip
@click.option("--skip-attention", metavar="all|all-but-last|N", help="Skip the attention of these layers.")
@click.option("--on-finding", metavar="CMD", help="Shell command that reads report.json from standard input.")
@click.option("--partition", metavar="NAME", help="Partition to run in.")
@click.option("--time", metavar="LIMIT", help="Time limit: minutes, HH:MM:SS, D-HH.")
@click.option("--account", metavar="NAME", help="Account to charge.")
@click.option("--qos", metavar="NAME", help="Quality of service.")
@click.option("--gpus-per-node", metavar="[TYPE:]N", help="GPUs of each node.")
@click.option("--constraint", metavar="FEATURES", help="Features that the nodes must have.")
@click.option("--container-image", metavar="IMAGE", help="Image for the nodes, as the pyxis plugin takes it.")
@click.option("--container-python", metavar="PYTHON", help="Interpreter in the image.  [default: python3]")
@click.option("--slurm", "slurm_options", multiple=True, metavar="KEY[=VALUE]", help="Any other option of sbatch.")
@click.option(
    "--template", type=click.Path(path_type=Path), metavar="FILE", help="Batch script to use instead (jinja2)."
)
@click.option(
    "--signal-before", metavar="SECONDS", help="Warn the job this long before its time limit.  [default: 120]"
)
@click.option("--on-preempt", type=click.Choice(["signal", "checkpoint-file", "nothing"]),
              help="How the ranks are warned.  [default: signal]")  # fmt: skip
@click.option("--max-requeues", metavar="N", help="How often a warned job is requeued.  [default: 0]")
@click.option("--exclude-culprit", is_flag=True, default=None, help="Requeue without the node that the verdict names.")
@click.option("--detach", is_flag=True, help="Submit, print the run and the job, and return.")
@click.option(OTHER, "other_flags", multiple=True, hidden=True)  # what only the installed torch knows
@click.option("--dry-run", is_flag=True, help="Print the commands that would run, and exit.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    config: Path | None,
    dry_run: bool,
    detach: bool,
    program: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> None:
    """Run SCRIPT on every rank of a distributed job, and explain what goes wrong."""
    sys.exit(launch(config, dry_run=dry_run, detach=detach, program=program, options=options)[0])


def launch(
    config: Path | None, *, dry_run: bool, detach: bool, program: tuple[str, ...], options: dict[str, Any]
) -> tuple[int, RunDir | None]:
    """The exit code, and the run if one was made and followed to its end."""
    from distdbg.launch.backends import choose, named, place_of
    from distdbg.launch.backends.joining import joined_run, listen_early
    from distdbg.launch.io.ports import ReservedPort
    from distdbg.launch.plan.job import make_plan
    from distdbg.launch.plan.topology import look_at_machine

    listen_early()
    settings, origins = read_settings(program, config, options)
    choice = choose(settings, os.environ)
    if choice.note:
        click.echo(f"distdbg: {choice.note}", err=True)
    if choice.submits:
        return _submit(choice.backend, settings, dry_run=dry_run, detach=detach)
    placed = place_of(choice.backend, settings, os.environ, socket.gethostname())
    place, settings, notes = placed.place, placed.settings, list(placed.notes)
    backend = named(place.on)
    notes += [] if settings.slurm.container else grace_note(settings.grace)  # an image has a torch of its own
    if not place.remote and (settings.prom_dir or settings.metrics_port):
        from distdbg.launch.agent.exporting import check_outlets

        check_outlets(settings.prom_dir, settings.metrics_port, settings.nodes)
    port = ReservedPort()
    name = settings.name or Path(settings.program).stem
    machine, found = backend.machine(place, settings, os.environ, look_at_machine())
    plan = make_plan(
        settings,
        os.environ,
        machine,
        port=port.number,
        run_id=f"{name}-{place.job_id or port.number}",
        origins=origins,
        place=place,
        notes=[*notes, *found],
    )
    if dry_run:
        click.echo(backend.dry_run(plan))
        return 0, None
    from distdbg.launch.plan.quick_preflight import quick_preflight
    from distdbg.launch.run import run_job
    from distdbg.rundir import create_run_dir

    def say(note: str) -> None:
        click.echo(f"distdbg: {note}", err=True)

    run = joined_run() or create_run_dir(name, explicit=settings.run_dir, say=say)
    # Nodes elsewhere look at themselves, once their agents are up.
    for note in () if place.remote else quick_preflight(run):
        say(note)
    return run_job(settings, plan, run), run


command.params += _TORCHRUN_OPTIONS


def read_settings(
    program: tuple[str, ...], config: Path | None, options: dict[str, Any]
) -> tuple[JobSettings, dict[str, str]]:
    """Settings and their origins, with a program that can be started."""
    from distdbg.launch.plan.program import check_torch
    from distdbg.settings import settle

    settings, origins = settle(_given(program, options), config, _check_file)
    _check_program(settings)
    if not settings.slurm.container:  # an image has its own
        check_torch()
    return settings, origins


def _submit(backend: Backend, settings: JobSettings, *, dry_run: bool, detach: bool) -> tuple[int, RunDir | None]:
    from distdbg.launch.attach import attach

    if dry_run:
        click.echo(backend.describe(settings), nl=False)
        return 0, None
    submission = backend.submit(settings)
    run = submission.run
    if detach:
        click.echo(f"{run.id}\t{submission.job_id}")
    for line in submission.notes:
        click.echo(f"distdbg: {line}", err=True)
    return (0, None) if detach else (attach(run), run)


def _given(program: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What the command line (and PET_*, as torchrun reads it) says, by the job file's keys."""
    prefix = "torchrun_"
    typed = {
        name.removeprefix(prefix).replace("_", "-"): "" if value is True else str(value)
        for name, value in options.items()
        if name.startswith(prefix) and value not in (None, False)
    }
    other = {name: value for name, _, value in (text.partition("=") for text in options["other_flags"])}
    flags = from_environment(os.environ) | typed | other
    given = {key: options[key] for key in _KEYS if options.get(key) is not None}
    slurm = {key: options[key] for key in _SLURM_KEYS if options.get(key) is not None}
    if options["slurm_options"]:
        slurm["options"] = dict(_slurm_option(text) for text in options["slurm_options"])
    if slurm:
        given["slurm"] = slurm
    _one_number_of_nodes(given, flags, typed)
    if "nproc-per-node" in flags:
        given["nproc_per_node"] = flags.pop("nproc-per-node")
    if "no-python" in flags and "module" in flags:
        raise click.UsageError("--no-python and --module cannot both be: a module is run by Python")
    if program:
        key = "command" if "no-python" in flags else "module" if "module" in flags else "script"
        given |= {key: program[0], "args": list(program[1:])}
    if options["presets"]:
        given["presets"] = list(options["presets"])
    if options["env"]:
        given["env"] = dict(_pair(text) for text in options["env"])
    if options["hosts"] is not None:
        from distdbg.launch.plan.place import read_hosts

        given["hosts"] = read_hosts(options["hosts"])
    if options["guards"]:
        given["guards"] = dict(_guard(text) for text in options["guards"])
    for switch in ("no-python", "module"):
        flags.pop(switch, None)
    return given | ({"torchrun": flags} if flags else {})


def _one_number_of_nodes(given: dict[str, Any], flags: dict[str, str], typed: dict[str, str]) -> None:
    """--nnodes N is --nodes N; a range stays torchrun's, and what is typed goes before PET_NNODES."""
    nodes, nnodes = given.get("nodes"), flags.get("nnodes", "")
    if nodes is None:
        if nnodes and ":" not in nnodes:
            given["nodes"] = flags.pop("nnodes")
        return
    if "nnodes" in typed and nnodes not in (nodes, f"{nodes}:{nodes}"):
        raise click.UsageError(f"--nodes {nodes} and --nnodes {nnodes} cannot both be: leave one of them out")
    flags.pop("nnodes", None)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--env {text!r} is not NAME=VALUE")
    return name, value


def _slurm_option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.lstrip("-").partition("=")
    if not name:
        raise click.UsageError(f"--slurm {text!r} is not KEY=VALUE")
    return name, value if equals else True


def _guard(text: str) -> tuple[str, str]:
    from distdbg.launch.plan.guards import mistake

    name, equals, mode = text.partition("=")
    wrong = mistake(name, mode) if equals else "it is not ID=MODE"
    if wrong:
        raise click.UsageError(f"--guard {text!r}: {wrong}")
    return name, mode


def _check_file(settings: Any) -> list[tuple[tuple[str, ...], str]]:  # noqa: ANN401
    """What the model of a job file cannot know by itself: torchrun's flags, and which presets there are."""
    from distdbg.launch.plan.environment import preset_mistake
    from distdbg.launch.plan.guards import mistake

    found: list[tuple[tuple[str, ...], str]] = []
    found += [(("presets",), wrong) for name in settings.presets if (wrong := preset_mistake(name))]
    found += [(("guards", name), wrong) for name, mode in settings.guards.items() if (wrong := mistake(name, mode))]
    return found + [(("torchrun", name), sentence) for name, sentence in check_names(settings.torchrun)]


def _check_program(settings: Any) -> None:  # noqa: ANN401
    from distdbg.launch.plan.program import check_program, check_script

    image = settings.slurm.container
    if settings.command and not image:
        check_program(settings.command)
    elif settings.command or (settings.module and not settings.script):
        return
    elif not image:
        check_script(settings.program)
    elif "container-workdir" not in image and not Path(settings.program).is_absolute():
        check_script(settings.program, compiles=False)  # the image's Python may be another
