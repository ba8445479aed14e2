"""Submit a job to Slurm's queue: checks, batch script by a template, run directory, sbatch.

The script starts one `distdbg launch --on slurm` on the job's first node, which joins the run directory that the
submitter made. Its command line holds the submitter's settings. Secrets among its variables are in the submitter's
environment, which Slurm hands on, and not in the script.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distdbg.assets import MAIN, asset_dir
from distdbg.errors import DistdbgError, UsageError
from distdbg.given_file import read_given
from distdbg.launch.backends.interface import Submission
from distdbg.launch.backends.slurm import commands
from distdbg.launch.backends.slurm.template import TemplateMistake, render_apart, render_in_process
from distdbg.launch.io.journal import note
from distdbg.launch.plan.shell_words import argument_words, assignment, quote
from distdbg.launch.plan.torchrun_flags import check_values, is_one_of_many
from distdbg.masking import mask_argv
from distdbg.protocol.launcher_events import Submitted
from distdbg.rundir import RunDir, create_run_dir, link_latest
from distdbg.settings import JobSettings
from distdbg.whole_file import write_json, write_whole

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
_REQUEUE = Path(__file__).resolve().with_name("requeue.py")
#: Seconds after the ranks' grace period: the verdict is written, and Slurm may be late.
_VERDICT_S = 15
#: Options that give the ranks of a node more than the one CPU that a task gets by default.
_MORE_CPUS = {"cpus-per-task", "exclusive", "cpus-per-gpu", "mincpus", "cores-per-socket", "ntasks-per-core"}


class BatchSubmission:
    """A job that can be submitted. Raises UsageError for what no batch script can carry out."""

    def __init__(self, settings: JobSettings) -> None:
        _check(settings)
        self._settings = settings
        self._name = settings.name or Path(settings.program).stem
        self._cwd = Path.cwd()
        switch = ["--no-python"] if settings.command else ["--module"] if settings.module else []
        words = [assignment(name, value, "--env=") for name, value in settings.env.items()]
        words += argument_words([*switch, "--", settings.program, *settings.args])
        own = [sys.executable, str(MAIN), "launch", "--on=slurm", *_options_of_launch(settings)]
        #: the launch on the first node, each word as the shell takes it
        self.launch_words = [*map(quote, own), *(word.text for word in words)]
        #: variables whose values are in no script: sbatch must have them in its environment
        self.secrets = {name: value for word in words for name, value in word.secrets.items()}
        #: seconds from the warning to the end that the script makes by itself, early enough for grace and verdict
        self.stop_after_s = max(0, round(settings.slurm.signal_before - settings.grace - _VERDICT_S))

    def describe(self) -> str:
        """Return the script as it would be submitted, with the name of a future directory."""
        folder = self._settings.run_dir
        return self.render(RunDir(folder.absolute() if folder else self._cwd / "distdbg-runs" / "RUN"))

    def submit(self) -> Submission:
        """Raises UsageError for everything that keeps the job out of the queue: nothing ran, no directory is left."""
        self.render(RunDir(Path("/run")))  # a template's mistakes, before anything is made
        if shutil.which("sbatch") is None:
            raise UsageError(
                "there is no sbatch on PATH: this is no machine of a Slurm cluster",
                "Call distdbg where sbatch is; --on local runs on this machine.",
            )
        self._check_size()
        run = create_run_dir(self._name, explicit=self._settings.run_dir)
        try:
            write_whole(run.batch_script, self.render(run))
            number = commands.submit(str(run.batch_script), self.secrets)
        except DistdbgError as error:
            shutil.rmtree(run.path, ignore_errors=True)
            if self._settings.run_dir is None:
                link_latest(run.path.parent)
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"nothing was submitted: {error.message}", error.remedy) from None
        self._record(run, number)
        said = f"Slurm job {number} is submitted, everything about it in {os.path.relpath(run.path)}"
        return Submission(run, str(number), [said, *self._notes()])

    def _check_size(self) -> None:
        """Slurm itself would let a job wait for ever that is larger than its partition.

        A controller that does not answer this is not asked to submit: it would take the job when it wakes up.
        """
        nodes, found = self._settings.nodes, None
        try:
            found = commands.nodes_of(self._settings.slurm.partition)
        except commands.SlurmSilent as error:
            raise UsageError(f"nothing was submitted: {error.message}", error.remedy) from None
        except DistdbgError:
            pass  # sbatch will say what is wrong
        if found is not None and nodes > found[1]:
            raise UsageError(
                f"{nodes} nodes are asked for, and Slurm's partition {found[0]!r} has {found[1]}",
                "Ask for fewer, or name another partition; `sinfo -s` lists them.",
            )

    def _record(self, run: RunDir, number: int) -> None:
        settings = self._settings
        write_json(
            run.slurm,
            {
                "schema": "distdbg.slurm/1",
                "job_id": number,
                "submitted": time.time(),
                "argv": mask_argv(["distdbg", *sys.argv[1:]]),
                "cwd": str(self._cwd),
                "host": os.uname().nodename,
                "nodes": settings.nodes,
                "show_ranks": settings.show_ranks if settings.capture else "none",
                "max_requeues": settings.slurm.max_requeues,
            },
        )
        note(run, Submitted(job_id=number))

    def _notes(self) -> list[str]:
        """What was decided without being asked, and is seldom meant."""
        ranks, slurm = self._settings.nproc_per_node, self._settings.slurm
        if ranks == 1 or _MORE_CPUS & slurm.options.keys() or slurm.template:
            return []
        count = f"{ranks} " if isinstance(ranks, int) else ""
        return [f"unless the site says otherwise, the {count}ranks of a node share one CPU: "
                "--slurm exclusive or --slurm cpus-per-task=N asks for more"]  # fmt: skip

    def render(self, run: RunDir) -> str:
        """Return the whole script. Raises UsageError if the template cannot be used."""
        slurm = self._settings.slurm
        path = slurm.template or asset_dir("slurm") / "job.sbatch"
        text = _render(
            slurm.template,
            path,
            options=[
                f"--{name}" if not value else f"--{name}={shlex.quote(value)}" for name, value in self._directives(run)
            ],
            run_dir=str(run.path),
            events=str(run.events),
            python=sys.executable,
            requeue=str(_REQUEUE),
            launch=self.launch_words,
            checkpoint_file=str(run.checkpoint_wanted),
            on_preempt=slurm.on_preempt,
            stop_after=self.stop_after_s,
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

    def _directives(self, run: RunDir) -> Iterator[tuple[str, str]]:
        slurm = self._settings.slurm
        yield "job-name", self._name
        yield "nodes", str(self._settings.nodes)
        yield "ntasks-per-node", "1"
        for name in _OWN:
            if (value := getattr(slurm, name)) is not None:
                yield name.replace("_", "-"), value
        yield "signal", f"B:USR1@{slurm.signal_before}"
        yield ("requeue" if slurm.max_requeues else "no-requeue"), ""
        yield "chdir", str(self._cwd)
        # sbatch fills in %j and its like: a percent sign of ours is written twice
        yield "output", str(run.batch_log).replace("%", "%%")
        yield "open-mode", "append"
        yield from ((name, value) for name, value in slurm.options.items() if name not in slurm.container)


def _check(settings: JobSettings) -> None:
    for name in settings.slurm.options:
        if name in _REFUSED:
            raise UsageError(f"--slurm {name} cannot be: {_REFUSED[name]}", "Leave it out.")
    check_values(settings.torchrun)
    if settings.slurm.exclude_culprit and not settings.slurm.max_requeues:
        wrong = "--exclude-culprit leaves a node out when the job goes back into the queue, and it never does"
        raise UsageError(wrong, "Say how often it may: --max-requeues 1.")
    if settings.hosts:
        raise UsageError("--hosts is for --on ssh: Slurm chooses the nodes", "--slurm nodelist=a,b names some to it.")
    if is_one_of_many(settings.torchrun):
        raise UsageError(
            "--on slurm starts all nodes, and the options say that this is one node of several",
            "Leave --rdzv-endpoint, --node-rank, --master-addr and a range of nodes out.",
        )


def _options_of_launch(settings: JobSettings) -> Iterator[str]:
    """Yield every setting that differs from its default, except variables and the program."""
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
