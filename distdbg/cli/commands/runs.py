"""`distdbg runs` (housekeeping): list the runs of this folder, and remove old ones."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.collect.runs.run_status import RunStatus, run_status
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.rundir import RUNS_FOLDER, link_latest, runs_here

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@exits({0: "done", 3: "no run is here"})
@examples("distdbg runs", "distdbg runs prune --keep 20 --dry-run")
@click.group("runs", invoke_without_command=True)
@json_option("Print one JSON object instead of a table.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the runs in ./distdbg-runs, oldest first; `prune` removes old ones."""
    if ctx.invoked_subcommand is not None:
        return
    found = _here()
    if as_json:
        click.echo(json.dumps({"schema": "distdbg.runs/1", "runs": [s.as_json() for s in found]}, indent=1))
        return
    rows = [("RUN", "OUTCOME", "EXIT", "RANKS", "DURATION", "SIZE"), *(_row(s) for s in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for status in found:
        if status.why:
            click.echo(f"{status.run.id}: {status.why}", err=True)


@exits({0: "done", 3: "no run is here"})
@examples("distdbg runs prune --older-than 14d", "distdbg runs prune --keep 20 --dry-run")
@command.command("prune")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N.")
@click.option("--older-than", metavar="AGE", help="Remove only runs that started longer ago: 90m, 12h, 14d, 4w.")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
def prune(keep: int | None, older_than: str | None, dry_run: bool) -> None:
    """Remove runs that have ended. With both options a run must be old and not among the newest N.

    A run that still runs is never removed, nor a run whose state is not known on this machine.
    """
    if keep is None and older_than is None:
        raise UsageError("nothing says which runs may go", "Give --keep N, --older-than 14d, or both.")
    limit = time.time() - _seconds(older_than) if older_than is not None else None
    found = _here()
    candidates = found[: len(found) - keep] if keep is not None else found
    removed = freed = 0
    for status in candidates:
        if limit is not None and (status.started is None or status.started > limit):
            continue
        if status.live is not False:
            click.echo(f"kept     {status.run.id}: {'it still runs' if status.live else status.why}")
            continue
        click.echo(f"{'would go' if dry_run else 'removed '} {status.run.id}  {_bytes(status.size)}")
        if not dry_run:
            _remove(status.run.path)
        removed += 1
        freed += status.size
    if removed and not dry_run:
        link_latest(found[0].run.path.parent)
    click.echo(f"{removed} of {len(found)} runs {'would be ' if dry_run else ''}removed, {_bytes(freed)}")


def _here() -> list[RunStatus]:
    runs = runs_here()
    if not runs:
        raise NothingToAnalyse(
            f"no run is here: {str(Path.cwd() / RUNS_FOLDER)!r} does not exist or is empty",
            "Change to the folder that a job was launched from.",
        )
    return [run_status(run, measure=True) for run in runs]


def _remove(path: Path) -> None:
    """Rename the run first, so that no reader meets a half removed run."""
    doomed = path.with_name(f".removing-{path.name}")
    try:
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} cannot be removed: {error.strerror}", "Remove it as its owner."
        ) from None


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", age.strip())
    if match is None:
        raise UsageError(f"--older-than: {age!r} is no age", "Write a number and m, h, d or w: 14d.")
    return float(match[1]) * _UNITS[match[2]]


def _row(status: RunStatus) -> tuple[str, ...]:
    end = time.time() if status.live else status.ended
    lasted = "" if end is None or status.started is None else _duration(end - status.started)
    code = "" if status.exit_code is None else str(status.exit_code)
    return (status.run.id, status.outcome, code, str(status.ranks), lasted, _bytes(status.size))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
