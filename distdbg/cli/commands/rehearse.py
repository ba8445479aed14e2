"""`distdbg rehearse` (before the run): run a job of N GPUs on a machine without one."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdbg.cli.commands.launch import LaunchCommand, launch, read_settings
from distdbg.cli.commands.launch import command as launch_command
from distdbg.cli.epilog import LAUNCHES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.errors import EXIT_FINDINGS, EXIT_OWN_ERROR
from distdbg.model import unfold_ranks
from distdbg.protocol.progress import SIMULATED_DEVICES
from distdbg.rehearse.devices import DEFAULT_KIND, GPU_KINDS, GUARDS_OF_VALUES, require_gpu_box, set_up, simulate
from distdbg.rehearse.fitting import GPUS, Fit

if TYPE_CHECKING:
    from distdbg.rehearse.devices import GpuKind
    from distdbg.rundir import RunDir

#: Options of a launch that say where a job runs: a rehearsal runs here.
_ELSEWHERE = {"on", "hosts", "detach", "dry_run", "memory", "slurm_options", "template", "partition", "time",
              "account", "qos", "gpus_per_node", "constraint", "container_image", "container_python", "signal_before",
              "on_preempt", "max_requeues", "exclude_culprit", "torchrun_nproc_per_node"}  # fmt: skip
_MOST_GPUS = 16
ALL, REPRESENTATIVES = "all", "representatives"
#: More ranks than these are run only where --ranks asks for them: each takes some seconds of a CPU to start.
_MOST_A_CPU = 8
#: Memory of the host that a rank of a large model takes.
_RANK_BYTES = 600 << 20
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
#: A hang is reported early, and ends the job: a rank that waits takes no CPU time here, so one that works is excused.
_HANG_TIMEOUT_S = "60"
#: The step at whose end the snapshot is taken that says what fills a device: the optimizer has its states by then.
_SNAPSHOT_STEPS = "2:2"


#: What --ranks takes.
Which = str | tuple[int, ...]


class Size(click.ParamType[int]):
    """`80GiB`, `80G`, `512M`: bytes, by powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT]?)(?:i?B)?", str(value), re.IGNORECASE)
        size = int(float(found[1]) * (1 << _UNITS[found[2].upper()])) if found else 0
        if not 64 << 20 <= size <= 4 << 40:
            self.fail(f"{value!r} is no size of a device: write 80GiB; 64 MiB to 4 TiB are possible", param, ctx)
        return size


class Fitting(click.ParamType[Fit]):
    """`batch-size=1:64`, `gpus=1:16`."""

    name = "NAME=LOW:HIGH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fit:  # noqa: ANN401
        if isinstance(value, Fit):
            return value
        found = re.fullmatch(r"-{0,2}([A-Za-z][\w.-]{0,60})=(\d{1,9}):(\d{1,9})", str(value))
        if found is None:
            self.fail(f"{value!r} is not NAME=LOW:HIGH, as batch-size=1:64 or gpus=1:16", param, ctx)
        low, high = int(found[2]), int(found[3])
        if not 1 <= low <= high or (found[1] == GPUS and high > _MOST_GPUS):
            most = f"; a node has at most {_MOST_GPUS} GPUs" if found[1] == GPUS else ""
            self.fail(f"{value!r}: the numbers go from at least 1 upwards{most}", param, ctx)
        return Fit(found[1], low, high)


class Ranks(click.ParamType[Which]):
    """`all`, `representatives`, or `0,7,56-63`."""

    name = "all|representatives|RANKS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Which:  # noqa: ANN401
        if value in (ALL, REPRESENTATIVES) or isinstance(value, tuple):
            return value  # type: ignore[no-any-return]
        try:
            ranks = unfold_ranks(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not ranks:
            self.fail("no rank is named", param, ctx)
        return ranks


class RehearseCommand(LaunchCommand):
    """Reads torchrun's spellings, as a launch does."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        of_launch = {param.name for param in launch_command.params} - {"nodes"}
        own: list[tuple[str, str]] = []
        launchs: list[tuple[str, str]] = []
        for option in self._options():
            if record := option.get_help_record(ctx):
                (launchs if option.name in of_launch else own).append(record)
        with formatter.section("Options"):
            formatter.write_dl([*own, ("-h, --help", "Show this and exit.")])
        with formatter.section("As for `distdbg launch`, which has torchrun's as well"):
            formatter.write_dl(launchs)


@exits(LAUNCHES | {4: "no simulated devices can be set up here", 10: "--fit found nothing that fits"}, of_job=True)
@examples(
    "distdbg rehearse --gpus 8 --gpu-memory 80GiB train.py --steps 3",
    "distdbg rehearse --fit batch-size=1:64 train.py --steps 3",
    "distdbg rehearse --resume 4 --resume-with=--resume train.py",
)
@click.command(
    cls=RehearseCommand,
    context_settings=launch_command.context_settings,
)
@click.option(
    "--gpus", type=click.IntRange(1, _MOST_GPUS), default=8, show_default=True, help="GPUs of each node, a rank each."
)
@click.option(
    "--gpu",
    type=click.Choice(list(GPU_KINDS)) if GPU_KINDS else click.STRING,
    default=DEFAULT_KIND,
    show_default=True,
    help="Kind of the GPUs.",
)
@click.option("--gpu-memory", type=Size(), help="Memory of each GPU.  [default: what its kind has]")
@click.option(
    "--ranks",
    type=Ranks(),
    help="Run all ranks, these, or one for each role; the others are simulated.  [default: all, if they are few]",
)
@click.option(
    "--fit", type=Fitting(), help="Search the largest value of an option of SCRIPT that fits, or the fewest gpus."
)
@click.option(
    "--resume",
    type=click.IntRange(1, _MOST_GPUS),
    metavar="GPUS",
    help="Then run SCRIPT again on so many GPUs of each node: it resumes its checkpoint.",
)
@click.option("--resume-with", default="", metavar="'ARGUMENTS'", help="Arguments added to SCRIPT's for that.")
@click.option("--values", is_flag=True, help="Compute each operator on the CPU: right values, slowly.")
@click.option("--setup", "setup_only", is_flag=True, help="Set up the simulated devices, say where, and exit.")
@json_option("Print one JSON object (distdbg.report/1, and a key `rehearsal`).")
def command(
    gpus: int, gpu: str, gpu_memory: int | None, *, ranks: Which | None, fit: Fit | None, resume: int | None,
    resume_with: str, values: bool, setup_only: bool, as_json: bool, program: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """Run SCRIPT on simulated GPUs: whether it fits, what fills them, and which collectives each step has.

    The script runs unmodified with the CUDA build of torch; its allocator and process groups are real, and kernels
    compute nothing. It needs no GPU. Let it do three steps.
    """
    require_gpu_box()
    if resume is None and resume_with:
        raise click.UsageError("--resume-with says how SCRIPT resumes: it needs --resume")
    if resume is not None and fit is not None:
        raise click.UsageError("--resume and --fit cannot be given together")
    if resume is not None and ranks not in (None, ALL):
        raise click.UsageError("--resume needs all ranks: each has written a part of the checkpoint")
    ranks = ALL if resume is not None else ranks
    if setup_only:
        click.echo(str(set_up(_announce)))
        return
    if program:
        from distdbg.rehearse.launchers import refuse_launcher

        refuse_launcher(program, is_module=bool(options.get("torchrun_module")))
    kind = replace(GPU_KINDS[gpu], memory=gpu_memory or GPU_KINDS[gpu].memory)
    job = _Job((gpu, kind), values, ranks, program, options, quiet=as_json or fit is not None)
    if fit is not None:
        sys.exit(_search(job, fit, gpus, as_json=as_json))
    code, run = job.rehearse(gpus, program)
    saved = None
    if resume is not None and code == 0:
        gpus, saved = resume, run
        click.echo(f"distdbg: once more, on {job.devices(gpus)}: SCRIPT resumes its checkpoint", err=True)
        code, run = job.rehearse(gpus, (*program, *shlex.split(resume_with)))
    if run is not None:
        _show(run, job.devices(gpus), as_json=as_json, saved=saved)
    sys.exit(code)


command.params += [
    option for option in launch_command.params if option.name not in _ELSEWHERE or option.name.startswith("torchrun")
]


class _Job:
    """A script that is rehearsed once or several times on devices of one size. Raises what a launch would raise."""

    def __init__(
        self, kind: tuple[str, GpuKind], values: bool, ranks: Which | None, program: tuple[str, ...],
        options: dict[str, Any], *, quiet: bool,
    ) -> None:  # fmt: skip
        (self._label, self._kind), self._values, self._ranks, self.program = kind, values, ranks, program
        self._chosen: dict[int, tuple[int, ...]] = {}
        self._runs = 0
        given = {**options, "memory": True, "memory_steps": options["memory_steps"] or _SNAPSHOT_STEPS}
        given |= dict.fromkeys(_ELSEWHERE - {"memory"})
        given |= {"on": "local", "slurm_options": (), "detach": False}
        given["hang_timeout"] = options["hang_timeout"] or _HANG_TIMEOUT_S
        given["on_hang"] = options["on_hang"] or "kill"
        switched_off = () if values else tuple(f"{guard}=off" for guard in GUARDS_OF_VALUES)
        given["guards"] = (*switched_off, *options["guards"])
        given["show_ranks"] = options["show_ranks"] or ("none" if quiet else None)
        self._config = given.pop("config")
        self._given = given
        #: Paths that processes have without simulated devices.
        self._paths = {name: os.environ[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
        settings, _ = read_settings(program, self._config, given)  # what is wrong is said before anything is set up
        self._nodes = settings.nodes

    def rehearse(self, gpus: int, program: tuple[str, ...]) -> tuple[int, RunDir | None]:
        """The exit code of the job, and its run. Raises ToolMissing without simulated devices."""
        if gpus not in self._chosen:
            code, run = self._choose(gpus, program)
            if code:
                return code, run
        return self._run(gpus, program, self._chosen[gpus])

    def _choose(self, gpus: int, program: tuple[str, ...]) -> tuple[int, RunDir | None]:
        """Decide which ranks are run: none is named where all are. The run of rank 0 alone where that failed."""
        from distdbg.rehearse.roles import read_groups, representatives

        size, most, wanted = self._nodes * gpus, _most_ranks(), self._ranks
        if isinstance(wanted, tuple):
            if wanted[-1] >= size:
                raise click.UsageError(f"--ranks: the job has ranks 0 to {size - 1}")
            self._chosen[gpus] = wanted
        elif wanted == ALL or (wanted is None and size <= most):
            self._chosen[gpus] = ()
        else:
            click.echo(
                f"distdbg: rank 0 of {size} alone, up to its first backward pass: which groups it forms", err=True
            )
            with tempfile.TemporaryDirectory(prefix="distdbg-groups-") as folder:
                groups = Path(folder, "groups")
                code, run = self._run(gpus, program, (0,), groups)
                found = read_groups(groups.read_text()) if groups.exists() else ()
            if code:
                return code, run
            self._chosen[gpus] = representatives(found, size, most)
        return 0, None

    def _run(
        self, gpus: int, program: tuple[str, ...], ranks: tuple[int, ...], groups: Path | None = None
    ) -> tuple[int, RunDir | None]:
        from distdbg.protocol import chosen_ranks

        for name in ("CUDA_VISIBLE_DEVICES", chosen_ranks.VARIABLE, "GPU_BOX_REAL", "GPU_BOX_GROUPS"):
            os.environ.pop(name, None)
        os.environ |= {"DISTDBG_KEEP_OPERATIONS": "on", "DISTDBG_VALUE_READS": "off" if self._values else "on"}
        os.environ[SIMULATED_DEVICES] = "on"
        options = {**self._given, "torchrun_nproc_per_node": str(gpus)}
        if ranks:
            os.environ[chosen_ranks.VARIABLE] = chosen_ranks.ChosenRanks(self._nodes, gpus, ranks).text
            options |= {"nodes": "1", "torchrun_nnodes": None, "torchrun_nproc_per_node": str(len(ranks))}
        options["run_dir"] = None if groups else self._run_dir()
        memory, values = str(self._kind.memory), self._values
        given: dict[str, Any] = {"kind": self._kind, "memory": memory, "values": values, "shadow": values}
        with simulate(set_up(_announce), real=ranks, groups=groups, devices=gpus, **given) as box:
            os.environ.update(box.environment(self._paths))
            return launch(self._config, dry_run=False, detach=False, program=program, options=options)

    def _run_dir(self) -> str | None:
        """What --run-dir names is the first run's; a second has -2 behind it."""
        self._runs += 1
        given = self._given["run_dir"]
        return f"{given}-{self._runs}" if given and self._runs > 1 else given

    def devices(self, gpus: int) -> str:
        from distdbg.evidence.memory.answer import gib

        return f"{self._nodes} x {gpus} {self._label.upper()} GPUs of {gib(self._kind.memory)}"


def _search(job: _Job, fit: Fit, gpus: int, *, as_json: bool) -> int:
    """Rehearse until the answer is known, and show it. The exit code: 0 where something fits, 10 where nothing does,
    else that of a job which ended for another reason than its memory."""
    from distdbg.cli import answer
    from distdbg.rehearse.document import Try, fit_document
    from distdbg.rehearse.reading import read_rehearsal

    tries: list[Try] = []
    while (value := fit.next_value({one.value: one.fits for one in tries})) is not None:
        on = value if fit.name == GPUS else gpus
        click.echo(f"distdbg: {fit.name} {value}, on {job.devices(on)}", err=True)
        code, run = job.rehearse(on, fit.arguments(job.program, value))
        if run is None:
            return code
        rehearsed = read_rehearsal(run)
        if rehearsed.fits is None:
            _show(run, job.devices(on), as_json=as_json)
            return code or EXIT_OWN_ERROR
        outcome = "fits" if rehearsed.fits else "does not fit"
        click.echo(f"distdbg: {fit.name} {value}: {outcome} ({run.path})", err=True)
        tries.append(Try(value, rehearsed.fits, rehearsed.rehearsal.highest, str(run.path)))
    best = fit.answer({one.value: one.fits for one in tries})
    answer.show(fit_document(fit, tries), as_json=as_json)
    return EXIT_FINDINGS if best is None else 0


def _most_ranks() -> int:
    """How many ranks this machine runs at once."""
    import psutil

    return max(2, min(_MOST_A_CPU * (os.cpu_count() or 1), psutil.virtual_memory().available // _RANK_BYTES))


def _announce(message: str) -> None:
    click.echo(f"distdbg: {message}", err=True)


def _show(run: RunDir, devices: str, *, as_json: bool, saved: RunDir | None = None) -> None:
    """`saved` is the run that has saved the checkpoint which this one has resumed."""
    from distdbg.cli import answer
    from distdbg.rehearse.document import rehearsal_document
    from distdbg.rehearse.reading import read_rehearsal

    found = read_rehearsal(run)
    document = rehearsal_document(found, devices, verdict=as_json, resumed=str(saved.path) if saved else None)
    answer.show(document, as_json=as_json)
