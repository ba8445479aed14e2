"""`distdbg rehearse`: run a job of N GPUs on a machine without one: does it fit, which collectives does it have."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from distdbg.cli._exits import LAUNCHES, exits
from distdbg.cli._json import json_option
from distdbg.cli.launch import LaunchCommand, launch
from distdbg.cli.launch import command as launch_command
from distdbg.errors import ToolMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Options of a launch that say where a job runs: a rehearsal runs here.
_ELSEWHERE = {"on", "hosts", "detach", "dry_run", "memory", "slurm_options", "template", "partition", "time",
              "account", "qos", "gpus_per_node", "constraint", "container_image", "container_python", "signal_before",
              "on_preempt", "max_requeues", "exclude_culprit", "torchrun_nproc_per_node"}  # fmt: skip
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
#: A rank that waits takes no CPU here, and one that works does: a hang is told early, and ends the job.
_HANG_TIMEOUT_S = "60"
#: The step at whose end the snapshot is taken that says what fills a device: the optimizer has its states by then.
_SNAPSHOT_STEPS = "2:2"


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


class RehearseCommand(LaunchCommand):
    """Reads torchrun's spellings, as a launch does."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        launchs: list[tuple[str, str]] = []
        for option in self._options():
            if record := option.get_help_record(ctx):
                (own if option.name in _OWN else launchs).append(record)
        with formatter.section("Options"):
            formatter.write_dl([*own, ("-h, --help", "Show this and exit.")])
        with formatter.section("As for `distdbg launch`, which has torchrun's as well"):
            formatter.write_dl(launchs)


_OWN = ("gpus", "gpu_memory", "values", "setup_only", "as_json", "nodes")


@exits(LAUNCHES | {4: "the simulated devices cannot be set up here"}, of_job=True)
@click.command(
    cls=RehearseCommand,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--gpus", type=click.IntRange(1, 16), default=8, show_default=True, help="GPUs of each node, a rank each."
)
@click.option("--gpu-memory", type=Size(), default="80GiB", show_default=True, help="Memory of each GPU.")
@click.option("--values", is_flag=True, help="Compute each operator on the CPU: right values, slowly.")
@click.option("--setup", "setup_only", is_flag=True, help="Set up the simulated devices, say where, and exit.")
@json_option("Print one JSON object (distdbg.report/1, and a key `rehearsal`).")
def command(
    gpus: int, gpu_memory: int, *, values: bool, setup_only: bool, as_json: bool, program: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """Run SCRIPT on simulated GPUs: whether it fits, what fills them, and which collectives each step has.

    \b
    distdbg rehearse --nodes 2 --gpus 8 --gpu-memory 80GiB train.py --steps 3
    distdbg rehearse --setup

    The script runs unmodified with the CUDA build of torch; its allocator and process groups are real, and kernels
    compute nothing. It needs no GPU. Let it do three steps.
    """
    with _devices(gpus, gpu_memory, values=values, only=setup_only):
        if setup_only:
            return
        given = {**options, "memory": True, "memory_steps": options["memory_steps"] or _SNAPSHOT_STEPS}
        given |= dict.fromkeys(_ELSEWHERE - {"memory"})
        given |= {"on": "local", "slurm_options": (), "torchrun_nproc_per_node": str(gpus), "detach": False}
        given["hang_timeout"] = options["hang_timeout"] or _HANG_TIMEOUT_S
        given["on_hang"] = options["on_hang"] or "kill"
        given["guards"] = (*(() if values else _guards_of_values()), *options["guards"])
        given["show_ranks"] = options["show_ranks"] or ("none" if as_json else None)
        os.environ["DISTDBG_KEEP_OPERATIONS"] = "on"
        config = given.pop("config")
        code, run = launch(config, dry_run=False, detach=False, program=program, options=given)
    if run is not None:
        _show(run, f"{options['nodes'] or 1} x {gpus} GPUs of {_gib(gpu_memory)}", as_json=as_json)
    sys.exit(code)


command.params += [
    option for option in launch_command.params if option.name not in _ELSEWHERE or option.name.startswith("torchrun")
]


@contextmanager
def _devices(gpus: int, memory: int, *, values: bool, only: bool) -> Iterator[None]:
    """This process and what it starts see the simulated devices."""
    from importlib.metadata import PackageNotFoundError, version

    from distdbg.rehearse.gpu_box.box import gpu_box
    from distdbg.rehearse.gpu_box.build import NotPossible, build, is_built

    try:
        torch = version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise ToolMissing("torch is not installed", "Install the torch that your job uses.") from None
    if not is_built(torch):
        click.echo(f"distdbg: setting up simulated GPUs for torch {torch}, once: a download of 0.5 GB", err=True)
    try:
        root = build(torch)
    except NotPossible as error:
        raise ToolMissing(f"simulated GPUs cannot be set up here: {error}", "docs/rehearse.md says what is needed."
                          ) from None  # fmt: skip
    if only:
        click.echo(str(root))
        yield
        return
    with gpu_box(root, devices=gpus, memory=str(memory), values=values, shadow=values) as box:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update(box.environment())
        yield


def _guards_of_values() -> tuple[str, ...]:
    from distdbg.rehearse.gpu_box.box import GUARDS_OF_VALUES

    return tuple(f"{guard}=off" for guard in GUARDS_OF_VALUES)


def _gib(size: int) -> str:
    from distdbg.evidence.memory.answer import gib

    return gib(size)


def _show(run: Any, devices: str, *, as_json: bool) -> None:  # noqa: ANN401
    from distdbg.cli import _answer
    from distdbg.rehearse.document import rehearsal_document
    from distdbg.rehearse.reading import read_rehearsal

    _answer.show(rehearsal_document(read_rehearsal(run), devices, verdict=as_json), as_json=as_json)
