"""`distdbg preflight` (before the run): check the nodes of a job in seconds."""

from __future__ import annotations

import sys

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import BackendChoice
from distdbg.errors import EXIT_INTERRUPTED


@exits(
    {
        0: "nothing of severity error",
        3: "Slurm has no free nodes now",
        4: "ssh or srun is missing",
        10: "findings of severity error",
        EXIT_INTERRUPTED: "it was interrupted, and shows what the nodes had answered",
    }
)
@examples("distdbg preflight", "distdbg preflight --hosts node1,node2")
@click.command("preflight")
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Number of nodes.  [default: all, or 1]")
@click.option("--on", type=BackendChoice(), default="auto",
              help="auto: ssh with --hosts, slurm inside an allocation or for several nodes.")  # fmt: skip
@click.option("--hosts", metavar="A,B|FILE", help="Hosts to reach by ssh, or a file with one host per line.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="P",
              help="Port of the rendezvous on the first node.  [default: a free one]")  # fmt: skip
@click.option("--ssh-config", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="As ssh -F.")
@click.option(
    "--no-allreduce", "reduce", flag_value=False, default=True, help="Skip the all-reduce, which needs torch."
)
@json_option("Print the report as one JSON object (distdbg.report/1).")
def command(  # noqa: PLR0917 -- click passes them by name
    nodes: int | None,
    on: str,
    hosts: str | None,
    port: int | None,
    ssh_config: str | None,
    reduce: bool,
    as_json: bool,
) -> None:
    """Check the nodes of a job before it starts: names, ports, interfaces, clocks, disks, limits, versions, GPUs, and
    a real all-reduce over them. Run it where you will launch the job, with the same environment.
    """
    from distdbg.cli import answer
    from distdbg.launch.plan.place import read_hosts
    from distdbg.launch.preflight import ask
    from distdbg.report.json_form import dumps
    from distdbg.report.preflight_report import preflight_report
    from distdbg.report.text.preflight_text import render_preflight

    say = answer.ProgressBar()
    named = tuple(read_hosts(hosts)) if hosts is not None else ()
    options = ("-F", ssh_config) if ssh_config else ()
    with answer.terminable():
        preflight = ask(on, nodes, named, port=port or 0, ssh_options=options, reduce=reduce, say=say)
    say("")
    report = preflight_report(preflight)
    if as_json:
        click.echo(dumps(report), nl=False)
    else:
        click.echo(render_preflight(report, preflight, answer.screen()))
    sys.exit(EXIT_INTERRUPTED if preflight.incomplete else answer.exit_code(report))
