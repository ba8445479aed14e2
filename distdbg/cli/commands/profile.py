"""`distdbg profile` (diagnose): report where a step's time goes, from profiler traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import JUDGES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import SecondsRange
from distdbg.wording import name_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.collect.runs.run_profiles import ProfileSet
    from distdbg.launch.watch.file_requests import Taken
    from distdbg.rundir import RunDir


@exits(JUDGES | {3: "no profile", 6: "a rank wrote no profile"})
@examples("distdbg profile --steps 5", "distdbg profile --ranks 0,3 distdbg-runs/latest", "distdbg profile trace.json")
@click.command("profile")
@click.argument("what", nargs=-1, metavar="[RUN|FILE…]")
@click.option("--ranks", metavar="RANKS", help="Ranks of a running job to profile, such as 0,3 or 0-3.")
@click.option("--steps", type=click.IntRange(1, 100), help="Number of steps of a running job to profile.  [default: 5]")
@click.option("--within", type=SecondsRange(1, 86400), default=120.0, show_default=True, help="Seconds to wait.")
@json_option("Print one JSON object (distdbg.report/1, and a key `profile`).")
def command(what: tuple[str, ...], ranks: str | None, steps: int | None, within: float, as_json: bool) -> None:
    """Profile the next steps of a running RUN; without RUN, of the newest here. Report where their time goes.

    For a run that has ended, or with FILEs, the existing profiles are read. The traces of all ranks of a run are merged
    into one file for ui.perfetto.dev, on one clock.
    """
    from distdbg.cli import answer
    from distdbg.collect.runs.explaining import is_run
    from distdbg.errors import EXIT_REFUSED, UsageError
    from distdbg.launch.watch.file_requests import living_ranks
    from distdbg.rundir import find_run_dir, refuse_unreadable

    for word in what:
        refuse_unreadable(word)
    files = [Path(word) for word in what]
    if files and all(path.is_file() or (path.is_dir() and not is_run(path)) for path in files):
        if ranks is not None or steps:
            raise UsageError("--ranks and --steps are for a running job", "Leave them out.")
        report_on(files, as_json)
    missing = next((word for word in what if not Path(word).exists()), "")
    if len(what) > 1 or missing.endswith((".json", ".json.gz")):
        wrong = f"{missing!r} is no file" if missing else "a run was named beside others"
        raise UsageError(wrong, "Name traces, folders of traces, or one run.")
    run, say = find_run_dir(what[0] if what else None), answer.ProgressBar()
    silent: list[Taken] = []
    if ranks is not None or steps or living_ranks(run):
        sets, silent = _asked(run, ranks, steps or 5, within, say)
    else:
        sets = _there(run)
    for found in sets:
        _merge(found, say, err=as_json)
    try:
        if sets:
            report_on([path for _, path in sorted(sets[-1].files.items())], as_json)
    finally:  # report_on ends the command, but what is missing says more than what was found
        if silent:
            sys.exit(EXIT_REFUSED)


def _asked(
    run: RunDir, ranks: str | None, steps: int, within: float, say: Callable[[str], None]
) -> tuple[list[ProfileSet], list[Taken]]:
    """What the ranks gave, and the ranks that gave nothing, which are named."""
    from distdbg.cli.options import ranks_of
    from distdbg.collect.runs.run_profiles import sets_of
    from distdbg.launch.watch.file_requests import take_profiles

    taken = take_profiles(run, ranks_of("--ranks", ranks), steps, within, say)
    say("")
    for one in taken:
        if one.because or one.missing:
            what = "not whole" if one.files else "none"
            click.echo(f"distdbg: profile of rank {one.rank}: {what}: {one.because or one.missing}", err=True)
    files = frozenset(path for one in taken for path in one.files)
    return sets_of(run.attempts()[-1], files), [one for one in taken if not one.files]


def _there(run: RunDir) -> list[ProfileSet]:
    """What the ranks have left; raises NothingToAnalyse where that is nothing, with what they said of it."""
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.collect.runs.run_profiles import profile_sets
    from distdbg.errors import NothingToAnalyse

    missing = [one for one in load_evidence(run).unknown if one.what.startswith("profile of steps")]
    sets = profile_sets(run)
    if not sets:
        why = "; ".join(f"{one.what}: {one.because}" for one in missing) or "nobody asked for any"
        raise NothingToAnalyse(
            f"{run.id} has no profile: {why}",
            "`distdbg launch --profile FIRST:LAST` takes them, or this while it runs.",
        )
    for one in missing:
        click.echo(f"distdbg: {one.what}: {one.because}", err=True)
    return sets


def _merge(found: ProfileSet, say: Callable[[str], None], *, err: bool) -> None:
    """Make one file of them, unless that is done, and say which it is."""
    from distdbg.evidence.trace.clock import words

    ranks = name_ranks(found.files)
    what = f"steps {found.first}-{found.last} of {ranks}"
    if found.merged():
        click.echo(f"{what}: {found.target}", err=err)
        return
    merged = found.merge(say)
    say("")
    click.echo(f"{what}: {merged.path}\n  {words(merged.clocks)}", err=err)
    for path, why in merged.cut.items():
        click.echo(f"distdbg: {path}: {why}; it was used as far as it goes", err=True)


def report_on(files: list[Path], as_json: bool) -> None:
    """Read traces of any origin. Ends the command: 3 no trace among them, 5 none that can be read."""
    from distdbg.cli import answer
    from distdbg.collect.files.trace_files import read_traces
    from distdbg.report.profile_document import profile_document

    say = answer.ProgressBar()
    document = profile_document(*read_traces(files, say))
    say("")
    answer.show(document, as_json=as_json)
    sys.exit(answer.exit_code(document.report))
