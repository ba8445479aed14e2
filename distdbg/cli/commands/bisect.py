"""`distdbg bisect` (diagnose): find the smallest command that still fails."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.options import SecondsRange
from distdbg.errors import EXIT_OK, EXIT_REFUSED, UsageError
from distdbg.whole_file import write_whole

if TYPE_CHECKING:
    from distdbg.shrink.bisect.command import Command


@exits({0: "found and shown again", 3: "COMMAND does not fail as it is", 6: "the result did not show it again"})
@examples(
    "distdbg bisect -- distdbg launch --nproc-per-node 4 train.py",
    "distdbg bisect --vary --steps=1 -- torchrun train.py --steps 100",
    "distdbg bisect --finding unused-parameters -- torchrun train.py",
)
@click.command("bisect", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--finding", metavar="ID", help="Finding that the report must have; default: the same failure.")
@click.option("--vary", multiple=True, metavar="FLAG=LOW[:HIGH[:STEP]]",
              help="An option of the script to reduce: --seq-len=64:4096:64.")  # fmt: skip
@click.option("--fix", "fixed", multiple=True, type=click.Choice(["ranks", "layers"]), help="Do not reduce these.")
@click.option("--timeout", type=SecondsRange(min=1), metavar="SECONDS",
              help="Limit of one run; a longer run does not count.  [default: 3 times the first, plus 60]")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="New folder for the runs.  [default: a new one in ./distdbg-bisect]")  # fmt: skip
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
def command(
    *, finding: str | None, vary: tuple[str, ...], fixed: tuple[str, ...], timeout: float | None, output: Path | None,
    words: tuple[str, ...]
) -> None:  # fmt: skip
    """Make a failing COMMAND small: find the fewest ranks and layers, and the smallest values of the script's own
    options, with which it fails the same way.

    Each try is a run. It is assumed that the failure shows every time, and that where a value shows it, each larger
    one does; the result is run twice more. Everything stays in one folder, with bisect.json and reproduce.sh,
    which are written after each run.
    """
    from distdbg.shrink.bisect.command import varied
    from distdbg.shrink.bisect.record import lines, write_record
    from distdbg.shrink.bisect.reducing import CONFIRMATIONS, BisectRequest, reduce_command, refuse_fixed

    parsed = _parsed(words)
    order = BisectRequest(finding, [varied(text) for text in vary], fixed, timeout)
    if finding is not None:
        _refuse_unknown(finding, parsed)
    refuse_fixed(parsed, order)
    folder = _folder(output)
    click.echo(f"distdbg: every run is in {folder}", err=True)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that the run ends, too
    try:
        found = reduce_command(
            parsed, order, folder, lambda line: click.echo(line, err=True), lambda so_far: write_record(so_far, folder)
        )
    except (KeyboardInterrupt, SystemExit):
        click.echo(f"distdbg: interrupted; what was found so far is in {folder}", err=True)
        raise
    for line in lines(found):
        click.echo(line)
    if found.confirmed != CONFIRMATIONS:
        click.echo("It does not show each time: what was found is no more than a hint.", err=True)
    sys.exit(EXIT_OK if found.confirmed == CONFIRMATIONS else EXIT_REFUSED)


def _parsed(words: tuple[str, ...]) -> Command:
    """The words of a launch by their meaning. torchrun's are those of `distdbg launch`."""
    from distdbg.cli.commands.launch import command as launch
    from distdbg.launch.plan.torchrun_flags import normalise
    from distdbg.shrink.bisect.command import Command

    front = _launcher(words)
    if not front:
        return Command((), (), tuple(words))
    done = normalise(words[front:], launch.takes_value())
    if "--" not in done:
        raise UsageError("COMMAND launches no script", "distdbg bisect -- distdbg launch [OPTIONS] SCRIPT [ARGS…]")
    at = done.index("--")
    return Command(("distdbg", "launch"), tuple(done[:at]), tuple(done[at + 1 :]))


def _launcher(words: tuple[str, ...]) -> int:
    """How many words call the launcher: distdbg launch, python -m distdbg launch, torchrun; 0 for another command."""
    names = [Path(word).name for word in words[:4]]
    if names[:1] == ["torchrun"]:
        return 1
    if names[:2] == ["distdbg", "launch"]:
        return 2
    return 4 if names[1:4] == ["-m", "distdbg", "launch"] else 0


def _refuse_unknown(finding: str, parsed: Command) -> None:
    from distdbg.diagnosis.rules import all_rules

    if not parsed.launcher:
        raise UsageError(
            "--finding needs a run's report, and COMMAND is no launch", "Write distdbg launch or torchrun."
        )
    known = {doc.id for rule in all_rules() for doc in rule.docs}
    if finding not in known:
        raise UsageError(f"--finding {finding!r}: there is no such finding", "`distdbg findings` lists them.")


def _folder(output: Path | None) -> Path:
    from distdbg.rundir import BISECT_FOLDER, make_dump_folder

    try:
        if output is None:
            return make_dump_folder("bisect", BISECT_FOLDER)
        output.mkdir(parents=True, mode=0o700)
        write_whole(output / ".gitignore", "*\n")
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be made: {error.strerror}", "Name another folder.") from None
    return output
