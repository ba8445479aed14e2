"""`distdbg compile-report` (models): report graph breaks and recompilations of torch.compile."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdbg.cli.commands.launch import LaunchCommand, launch
from distdbg.cli.commands.launch import command as launch_command
from distdbg.cli.epilog import LAUNCHES, examples, exits
from distdbg.cli.json_answer import answered, note_json
from distdbg.errors import EXIT_NOTHING, EXIT_OK

if TYPE_CHECKING:
    from distdbg.model import Unknown
    from distdbg.rundir import RunDir

#: What makes torch.compile give back what it gets; one for each of two places that torch asks.
_EAGER = ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1")


@exits(LAUNCHES | {EXIT_OK: "done", EXIT_NOTHING: "nothing was compiled"}, of_job=True)
@examples(
    "distdbg compile-report --nproc-per-node 2 train.py --steps 50",
    "distdbg compile-report --compare-eager train.py --steps 50",
)
@click.command(
    cls=LaunchCommand,
    context_settings=launch_command.context_settings,
    params=[
        *launch_command.params,
        click.Option(["--compare-eager"], is_flag=True, help="Run it again without compilation, and compare."),
        click.Option(
            ["--json", "as_json"], is_flag=True, callback=note_json, help="Print one JSON object (distdbg.compile/1)."
        ),
    ],
)
def command(
    config: Path | None, *, dry_run: bool, detach: bool, program: tuple[str, ...], compare_eager: bool, as_json: bool,
    **options: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """Run SCRIPT and report what torch.compile did: graph breaks with line and reason, recompilations with the guard
    that failed, time spent.

    The script is not changed, and runs to its end; all options are those of `distdbg launch`.
    """
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.diagnosis.verdict import build_report
    from distdbg.report.compiled import as_json as plain
    from distdbg.report.compiled import build, text
    from distdbg.report.json_form import dumps

    options["watch"] = "compile"
    if as_json:
        options["show_ranks"] = "none"
    given: dict[str, Any] = {"dry_run": dry_run, "detach": detach, "program": program}
    code, run = launch(config, options=options, **given)
    if code:
        if as_json and run is not None:
            click.echo(dumps(build_report(load_evidence(run))), nl=False)
            answered()
        sys.exit(code)
    eager, failed = None, None
    if run is not None and compare_eager:
        click.echo("distdbg: and now without compilation", err=True)
        code, eager, failed = _eager(config, _without(options), given)
    if run is None:
        return
    found = build(load_evidence(run), load_evidence(eager) if eager is not None else None)
    if failed is not None:
        found = replace(found, unknown=(*found.unknown, failed))
    click.echo(json.dumps(plain(found), indent=1) if as_json else text(found))
    sys.exit(code or (EXIT_OK if found.graphs else EXIT_NOTHING))


def _eager(
    config: Path | None, options: dict[str, Any], given: dict[str, Any]
) -> tuple[int, RunDir | None, Unknown | None]:
    """(exit code, the run where it succeeded, why there is nothing to compare with).

    The compiled run is over by now: its report is printed whatever the result of this one.
    """
    from distdbg.errors import DistdbgError
    from distdbg.model import Unknown

    try:
        code, run = launch(config, options=options, **given)
    except DistdbgError as error:
        code, run = error.exit_code, None
        why = f"the run without compilation did not begin: {error.message}"
    else:
        why = f"the run without compilation failed with exit code {code}: {run.path if run else 'no run directory'}"
    return (code, None, Unknown("what it is like without compilation", why)) if code else (0, run, None)


def _without(options: dict[str, Any]) -> dict[str, Any]:
    """The same job again, under names of its own."""
    again = options | {"env": (*options["env"], *_EAGER)}
    if options["name"]:
        again["name"] = f"{options['name']}-eager"
    if options["run_dir"]:
        again["run_dir"] = options["run_dir"].with_name(f"{options['run_dir'].name}-eager")
    return again
