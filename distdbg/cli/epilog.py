"""The end of a command's help: examples, and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from distdbg.errors import (
    EXIT_CODES,
    EXIT_FINDINGS,
    EXIT_HUNG,
    EXIT_LAUNCHER_BROKE,
    EXIT_LOST,
    EXIT_NOTHING,
    EXIT_OK,
    EXIT_TOOL_MISSING,
    EXIT_UNDECIDED,
    EXIT_UNREADABLE,
    EXIT_USAGE,
)

_Decorated = TypeVar("_Decorated", bound=click.Command)

#: of a command that reads a run
READS = {EXIT_OK: "done", EXIT_NOTHING: "nothing to read", EXIT_TOOL_MISSING: "not permitted"}
#: of a command that judges a job
JUDGES = {
    EXIT_OK: "nothing of severity error",
    EXIT_NOTHING: "nothing to analyse",
    EXIT_TOOL_MISSING: "not permitted",
    EXIT_UNREADABLE: "unreadable",
    EXIT_FINDINGS: "findings of severity error",
    EXIT_UNDECIDED: EXIT_CODES[EXIT_UNDECIDED],
}
#: of a command that runs a job, beside the codes of the job
LAUNCHES = {
    EXIT_OK: "every rank succeeded",
    EXIT_LAUNCHER_BROKE: "an error of distdbg's own",
    EXIT_HUNG: "the job was hung and was ended",
    EXIT_LOST: "lost sight of the job, which may still run",
}


def examples(*lines: str) -> Callable[[_Decorated], _Decorated]:
    """Show these command lines in the help, each on its own line: click does not wrap them."""
    text = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])

    def shown(command: _Decorated) -> _Decorated:
        command.epilog = text
        return command

    return shown


def exits(codes: dict[int, str], *, of_job: bool = False) -> Callable[[_Decorated], _Decorated]:
    """Name a command's exit codes at the end of its help; every command has 2. `of_job`: and the codes of a job."""
    every = {EXIT_USAGE: "usage", **codes}
    own = "the job's own (128+N where signal N ended it); " if of_job else ""
    text = f"Exit codes: {own}{', '.join(f'{code} {every[code]}' for code in sorted(every))}."

    def named(command: _Decorated) -> _Decorated:
        command.epilog = f"{command.epilog}\n\n{text}" if command.epilog else text
        return command

    return named
