"""`distdbg guards` (housekeeping): list the guards of a training job, and what each costs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option

if TYPE_CHECKING:
    from distdbg.worker.guards import Guard


@exits({0: "done", 1: "a guard failed its self-test", 4: "the self-test is not installed"})
@examples("distdbg guards", "distdbg guards checkpoint-race", "distdbg launch --guard checkpoint-race=fix train.py")
@click.command("guards")
@click.option(
    "--selftest", is_flag=True, help="Run small programs with and without each mistake, for about two minutes."
)
@json_option("Print JSON: a list.")
@click.argument("guard_id", metavar="[ID]", required=False)
def command(guard_id: str | None, *, selftest: bool, as_json: bool) -> None:
    """List the guards of every rank with their modes: distdbg launch --guard ID=MODE."""
    from distdbg.errors import UsageError
    from distdbg.launch.plan.guards import guards

    chosen = guards()
    if guard_id is not None:
        if guard_id not in chosen:
            raise UsageError(f"no guard is called {guard_id!r}", "`distdbg guards` lists them.")
        chosen = {guard_id: chosen[guard_id]}
    if selftest:
        _selftest(list(chosen))
    elif as_json:
        import json

        names = ("id", "default", "modes", "costs", "blind")
        click.echo(json.dumps([{n: getattr(guard, n) for n in names} for guard in chosen.values()], indent=1))
    else:
        _list(list(chosen.values()))


def _list(chosen: list[type[Guard]]) -> None:
    from distdbg.diagnosis.catalogue import documented

    docs = documented()
    for guard in chosen:
        modes = ", ".join(f"{mode} (default)" if mode == guard.default else mode for mode in guard.modes)
        click.echo(f"{click.style(guard.id, bold=True)}: {docs[guard.id].title}")
        for name, text in (("modes", modes), ("costs", guard.costs), ("blind", guard.blind)):
            for number, line in enumerate(textwrap.wrap(text, 100)):
                click.echo(f"  {name if not number else '':<7}{line}")


def _selftest(ids: list[str]) -> None:
    """Exit code 0 if each guard fires in the faulty programs alone, else 1."""
    from distdbg.assets import asset_dir
    from distdbg.errors import ToolMissing
    from distdbg.launch.plan.program import check_torch
    from distdbg.launch.replay.guard_trial import run_trials

    check_torch()
    programs = sorted(p for name in ids for p in (asset_dir("guards") / name).glob("*.py"))
    if not programs:
        raise ToolMissing("the programs of the self-test", "Install distdbg anew: its files are not whole.")
    failed = 0
    for trial in run_trials(programs):
        wrong = trial.complaint
        failed += bool(wrong)
        summary = trial.findings[0].summary if trial.findings else "silent"
        name = f"{trial.program.parent.name}/{trial.program.stem}"
        click.echo(f"{'WRONG' if wrong else 'ok':<6}{name:<48}{wrong or summary}")
    click.echo(f"{len(programs) - failed} of {len(programs)} programs as they should be")
    raise SystemExit(1 if failed else 0)
