"""`distdbg hang-dump`: where every rank of a running job stands, ours or any other, and why it does not go on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli._exits import JUDGES, exits
from distdbg.cli._json import json_option
from distdbg.cli._options import html_option, run_argument
from distdbg.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from distdbg.launch.watch.asked_dump import DumpOptions
    from distdbg.launch.watch.hang_dump import Taken, Target
    from distdbg.model import Report


@exits(JUDGES | {3: "no job", 4: "the ranks may not be looked at", 6: "the dump cannot be written"})
@click.command("hang-dump")
@run_argument
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, metavar="PID",
              help="Look at this process; once for each rank of a job that is not found by itself.")  # fmt: skip
@click.option("--slurm-job", metavar="ID", help="Look at a running Slurm job on all of its nodes, whoever started it.")
@click.option("--all", "everything", is_flag=True, help="Every job with ranks on this machine.")
@click.option("--locals", "values", is_flag=True, help="Keep the frames' variables as well: they may hold secrets.")
@click.option("--native", type=click.IntRange(min=0), default=2, show_default=True, metavar="N",
              help="Take C frames too, of the N rarest ranks; each is paused for about a second.")  # fmt: skip
@click.option("--looks", type=click.IntRange(1, 20), default=2, show_default=True,
              help="How often to look: two tell looping from blocked.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.05, 60), default=1.0, show_default=True,
              help="Seconds from one look to the next.")  # fmt: skip
@json_option("Print the report as one JSON object (distdbg.report/1).")
@html_option
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Put the dump there; it must not exist, or be empty.")  # fmt: skip
def command(  # noqa: PLR0917 -- click passes them by name
    run: str | None,
    pids: tuple[int, ...],
    slurm_job: str | None,
    everything: bool,
    values: bool,
    native: int,
    looks: int,
    interval: float,
    as_json: bool,
    html_path: Path | None,
    output: Path | None,
) -> None:
    """Look at a running job from outside, keep what was seen, and say why it does not go on.

    RUN is a run's directory, its id or a part of it. Without any argument: the newest run of this folder that still
    runs; else every torch job of yours on this machine, whoever launched it. The job goes on as before: a rank is
    paused for some 10 ms a look, and gets no signal.
    """
    from distdbg.cli import _answer
    from distdbg.launch.watch.asked_dump import DumpOptions
    from distdbg.launch.watch.hang_dump import choose, described, refuse_blind

    if (run is not None) + bool(pids) + (slurm_job is not None) + everything > 1:
        raise UsageError("RUN, --pid, --slurm-job and --all name different jobs", "Give one of them.")
    options = DumpOptions(
        looks=looks, interval=interval, native=native, values=values, within=8.0 + looks * (interval + 1.0)
    )
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
    taken = [_one(target, options, output, as_json, html_path) for target in targets]
    code = _answer.exit_code(*(report for report, _ in taken))
    if code == EXIT_OK:
        for _, dump in taken:
            refuse_blind(dump)
    sys.exit(code)


def _one(
    target: Target, options: DumpOptions, output: Path | None, as_json: bool, html_path: Path | None
) -> tuple[Report, Taken]:
    from distdbg.cli import _answer
    from distdbg.diagnosis.verdict import build_report
    from distdbg.launch.watch.hang_dump import take
    from distdbg.report.run_document import run_document

    say = _answer.progress()
    dump = take(target, options, output, say)
    report = build_report(dump.evidence)
    say("")
    document = run_document(report, dump.evidence, whole=html_path is not None)
    _answer.show(document, as_json=as_json, html=html_path)
    click.echo(f"distdbg: the dump is in {dump.folder}", err=True)
    return report, dump
