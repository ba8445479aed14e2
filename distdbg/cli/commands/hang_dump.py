"""`distdbg hang-dump` (diagnose): sample every rank of a running job, and say why it hangs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import JUDGES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import SecondsRange, html_option, run_argument
from distdbg.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from distdbg.launch.hang_dump import TakenDump, Target
    from distdbg.launch.watch.requested_dump import DumpOptions
    from distdbg.model import Report


@exits(JUDGES | {3: "no job", 4: "no rank could be sampled", 6: "the dump cannot be written"})
@examples("distdbg hang-dump", "distdbg hang-dump --slurm-job 4242", "distdbg hang-dump --pid 31337 --pid 31338")
@click.command("hang-dump")
@run_argument
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, metavar="PID",
              help="Process of a rank; once per rank of a job that distdbg does not find.")  # fmt: skip
@click.option("--slurm-job", metavar="ID", help="Dump a running Slurm job on all its nodes.")
@click.option("--all", "everything", is_flag=True, help="Dump every job with ranks on this machine.")
@click.option("--locals", "values", is_flag=True, help="Keep the local variables of the frames; they may hold secrets.")
@click.option("--native", type=click.IntRange(min=0), default=2, show_default=True, metavar="N",
              help="Collect C frames of N ranks with rare stacks; each is paused for about a second.")  # fmt: skip
@click.option("--looks", type=click.IntRange(1, 20), show_default="2; 4 of a job without heartbeats",
              help="Samples per rank; two distinguish a loop from a blocked rank.")  # fmt: skip
@click.option("--interval", type=SecondsRange(0.05, 60), default=1.0, show_default=True,
              help="Seconds between samples.")  # fmt: skip
@json_option("Print the report as one JSON object (distdbg.report/1).")
@html_option
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Folder for the dump; it must be new or empty.")  # fmt: skip
def command(  # noqa: PLR0917 -- click passes them by name
    run: str | None,
    pids: tuple[int, ...],
    slurm_job: str | None,
    everything: bool,
    values: bool,
    native: int,
    looks: int | None,
    interval: float,
    as_json: bool,
    html_path: Path | None,
    output: Path | None,
) -> None:
    """Sample a running job from outside, write a dump, and say why the job hangs.

    RUN is a run's directory, its id or a part of it. Without any argument: the newest run of this folder that still
    runs; else every torch job of yours on this machine, whoever launched it. The job continues: a rank is paused for
    about 10 ms per sample, and gets no signal.
    """
    from distdbg.cli import answer
    from distdbg.launch.hang_dump import choose, described, looks_at, refuse_blind
    from distdbg.launch.watch.requested_dump import DumpOptions

    if (run is not None) + bool(pids) + (slurm_job is not None) + everything > 1:
        raise UsageError("RUN, --pid, --slurm-job and --all name different jobs", "Give one of them.")
    targets: list[Target]
    if slurm_job is not None:
        from distdbg.launch.backends import named

        targets = [named("slurm").running(slurm_job)]
    else:
        targets = choose(run, pids, everything=everything)
    if len(targets) > 1 and (as_json or html_path or output):
        listed = "; ".join(map(described, targets))
        raise UsageError(
            f"{len(targets)} jobs run here, and --json, --html and -o are for one: {listed}",
            "Name it by --pid, a process of each of its ranks.",
        )

    def options(target: Target) -> DumpOptions:
        count = looks or looks_at(target)
        within = 8.0 + count * (interval + 1.0)
        return DumpOptions(looks=count, interval=interval, native=native, values=values, within=within)

    taken = [_one(target, options(target), output, as_json, html_path) for target in targets]
    code = answer.exit_code(*(report for report, _ in taken))
    if code == EXIT_OK:
        for _, dump in taken:
            refuse_blind(dump)
    sys.exit(code)


def _one(
    target: Target, options: DumpOptions, output: Path | None, as_json: bool, html_path: Path | None
) -> tuple[Report, TakenDump]:
    from distdbg.cli import answer
    from distdbg.diagnosis.verdict import build_report
    from distdbg.launch.hang_dump import take
    from distdbg.report.run_document import run_document

    say = answer.ProgressBar()
    dump = take(target, options, output, say)
    report = build_report(dump.evidence)
    say("")
    document = run_document(report, dump.evidence, whole=html_path is not None)
    answer.show(document, as_json=as_json, html=html_path)
    click.echo(f"distdbg: the dump is in {dump.folder}", err=True)
    return report, dump
