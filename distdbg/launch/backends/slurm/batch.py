"""Render the batch script from settings, by a template. Slurm is not called here.

The script starts one `distdbg launch --on slurm` on the job's first node, which joins the run directory that the
submitter made. What the command line of that launch says is what was settled here; secrets among its variables stand
in the submitter's environment, which Slurm hands on, and not in the script.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distdbg.assets import MAIN, asset_dir
from distdbg.errors import UsageError
from distdbg.given_file import read_given
from distdbg.launch.backends.slurm.template import TemplateMistake, render_apart, render_in_process
from distdbg.launch.plan.job import is_one_of_many
from distdbg.launch.plan.shell_words import ShellWord, argument_words, assignment, quote
from distdbg.launch.plan.torchrun_flags import value_mistake
from distdbg.rundir import RunDir
from distdbg.settings import JobSettings

_OWN = ("partition", "time", "account", "qos", "gpus_per_node", "constraint")
#: sbatch's options that cannot be the user's, and why.
_REFUSED = {
    "array": "its tasks would be several runs in one directory; submit one launch for each",
    "wrap": "the script is distdbg's; your own goes in by --template",
    "het-group": "a heterogeneous job is several allocations, and its ranks would not be alike",
    "gpus-per-task": "the only task of a node is its agent; write --gpus-per-node",
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu"),
                    "it follows from --nodes and --nproc-per-node: one agent a node starts that node's ranks"),
    **dict.fromkeys(("output", "error", "open-mode", "input"), "the batch script's output goes into the run directory"),
    **dict.fromkeys(("requeue", "no-requeue"), "it follows from --max-requeues"),
    "signal": "--signal-before and --on-preempt say it",
    "chdir": "ranks run in the folder that distdbg was called in",
    **dict.fromkeys(("parsable", "test-only", "wait", "quiet", "help", "version", "usage"), "distdbg calls sbatch"),
    **{name.replace("_", "-"): "it is an option of distdbg launch"
       for name in (*_OWN, "container_image", "container_python")},
    "job-name": "--name says it",
}  # fmt: skip
_SEVERAL_JOBS = re.compile(r"^#SBATCH\s+(--array\b|-a\b|hetjob\b|packjob\b)", re.MULTILINE)
#: Ends the batch script of a job that may go back into the queue.
_REQUEUE = Path(__file__).resolve().with_name("requeue.py")
#: After the ranks' grace period the verdict is written, and Slurm may be late: seconds.
_NEEDS_S = 15


def check(settings: JobSettings) -> None:
    """Raise UsageError for what no batch script can carry out."""
    for name in settings.slurm.options:
        if name in _REFUSED:
            raise UsageError(f"--slurm {name} cannot be: {_REFUSED[name]}", "Leave it out.")
    for name, value in settings.torchrun.items():
        if mistake := value_mistake(name, value):
            raise UsageError(mistake, "`distdbg launch --help` has torchrun's flags.")
    if settings.slurm.exclude_culprit and not settings.slurm.max_requeues:
        wrong = "--exclude-culprit leaves a node out when the job goes back into the queue, and it never does"
        raise UsageError(wrong, "Say how often it may: --max-requeues 1.")
    if settings.hosts:
        raise UsageError("--hosts is for --on ssh: Slurm chooses the nodes", "--slurm nodelist=a,b names some to it.")
    if is_one_of_many(settings):
        raise UsageError(
            "--on slurm starts all nodes, and the options say that this is one node of several",
            "Leave --rdzv-endpoint, --node-rank, --master-addr and a range of nodes out.",
        )


def render_script(settings: JobSettings, run: RunDir, cwd: Path) -> str:
    """The whole script. Raises UsageError where the template cannot be used."""
    slurm = settings.slurm
    path = slurm.template or asset_dir("slurm") / "job.sbatch"
    text = _render(
        slurm.template,
        path,
        options=[
            f"--{name}" if not value else f"--{name}={shlex.quote(value)}"
            for name, value in _options(settings, run, cwd)
        ],
        run_dir=str(run.path),
        events=str(run.events),
        python=sys.executable,
        requeue=str(_REQUEUE),
        launch=list(launch_words(settings)),
        checkpoint_file=str(run.checkpoint_wanted),
        on_preempt=slurm.on_preempt,
        stop_after=stop_after(settings),
        max_requeues=slurm.max_requeues,
        exclude_culprit=slurm.exclude_culprit,
    )
    if found := _SEVERAL_JOBS.search(text):
        raise UsageError(
            f"{path}: {found[0]!r} makes several jobs of one script, and a run is one job",
            "Submit one launch for each.",
        )
    if not text.startswith("#!"):
        raise UsageError(f"{path}: the first line is not `#!/bin/bash`", "sbatch needs it: write it there.")
    return text


def stop_after(settings: JobSettings) -> int:
    """Seconds from the warning to the end that the script makes by itself, early enough for grace and verdict."""
    return max(0, round(settings.slurm.signal_before - settings.grace - _NEEDS_S))


def notes(settings: JobSettings) -> list[str]:
    """What was decided without being asked, and is seldom meant."""
    names = {"cpus-per-task", "exclusive", "cpus-per-gpu", "mincpus", "cores-per-socket", "ntasks-per-core"}
    if settings.nproc_per_node == 1 or names & set(settings.slurm.options) or settings.slurm.template:
        return []
    ranks = f"{settings.nproc_per_node} " if isinstance(settings.nproc_per_node, int) else ""
    return [f"unless the site says otherwise, the {ranks}ranks of a node share one CPU: "
            "--slurm exclusive or --slurm cpus-per-task=N asks for more"]  # fmt: skip


def launch_words(settings: JobSettings) -> Iterator[str]:
    """The launch on the first node, each word as the shell takes it."""
    yield from map(quote, (sys.executable, str(MAIN), "launch", "--on=slurm"))
    yield from map(quote, _given(settings))
    yield from (word.text for word in _words_with_secrets(settings))


def secrets(settings: JobSettings) -> dict[str, str]:
    """Variables whose values are in no script: sbatch must have them in its environment."""
    return {name: value for word in _words_with_secrets(settings) for name, value in word.secrets.items()}


def _words_with_secrets(settings: JobSettings) -> Iterator[ShellWord]:
    yield from (assignment(name, value, "--env=") for name, value in settings.env.items())
    yield from argument_words(_program(settings))


def _given(settings: JobSettings) -> Iterator[str]:
    """Every setting that is not as it is by itself, but variables and the program."""
    for name in ("name", "nodes", "nproc_per_node", "worker_side", "grace", "hang_timeout",
                 "startup_timeout", "on_hang", "keep_layers", "skip_attention", "on_finding",
                 "memory_steps", "on_nonfinite", "profile", "profile_ranks", "overfit_batch", "prom_dir",
                 "metrics_port"):  # fmt: skip
        value = getattr(settings, name)
        if value is not None and (name == "nodes" or value != JobSettings.model_fields[name].default):
            yield f"--{name.replace('_', '-')}={value}"
    yield from (f"--{name.replace('_', '-')}" for name in ("full_load", "memory") if getattr(settings, name))
    if settings.watch:
        yield f"--watch={','.join(settings.watch)}"
    yield "--show-ranks=none" if settings.capture else "--no-capture"  # who follows shows them, from their logs
    yield from (f"--preset={name}" for name in settings.presets)
    yield from (f"--guard={name}={mode}" for name, mode in settings.guards.items())
    if settings.slurm.container:
        yield f"--container-python={settings.slurm.container_python}"
    for name, value in settings.slurm.container.items():
        yield f"--container-image={value}" if name == "container-image" else f"--slurm={name}" + (value and f"={value}")
    for name, value in settings.torchrun.items():
        yield f"--{name}" + (value and f"={value}")


def _program(settings: JobSettings) -> list[str]:
    switch = ["--no-python"] if settings.command else ["--module"] if settings.module else []
    return [*switch, "--", settings.program, *settings.args]


def _options(settings: JobSettings, run: RunDir, cwd: Path) -> Iterator[tuple[str, str]]:
    slurm = settings.slurm
    yield "job-name", settings.name or Path(settings.program).stem
    yield "nodes", str(settings.nodes)
    yield "ntasks-per-node", "1"
    for name in _OWN:
        if (value := getattr(slurm, name)) is not None:
            yield name.replace("_", "-"), value
    yield "signal", f"B:USR1@{slurm.signal_before}"
    yield ("requeue" if slurm.max_requeues else "no-requeue"), ""
    yield "chdir", str(cwd)
    # sbatch fills in %j and its like: a percent sign of ours is written twice
    yield "output", str(run.batch_log).replace("%", "%%")
    yield "open-mode", "append"
    yield from ((name, value) for name, value in slurm.options.items() if name not in slurm.container)


def _render(template: Path | None, path: Path, **values: Any) -> str:  # noqa: ANN401
    render = render_in_process if template is None else render_apart
    try:
        return render(read_given(path).decode("utf-8"), values)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the template {str(path)!r} cannot be read: {why}", "Name another file.") from None
    except TemplateMistake as mistake:
        place = f"{path}:{mistake.line}" if mistake.line else str(path)
        known = ", ".join(sorted(values))
        remedy = f"A template is given {known} and the filter sh."
        raise UsageError(
            f"{place}: the template does not render: {mistake.because}",
            "Correct that line of the template." if mistake.is_syntax else remedy,
        ) from None
