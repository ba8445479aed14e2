"""The exit codes of a command, at the end of its help."""

from __future__ import annotations

from collections.abc import Callable

import click

from distdbg.errors import EXIT_CODES, EXIT_FINDINGS, EXIT_NOTHING, EXIT_OK, EXIT_UNDECIDED, EXIT_UNREADABLE, EXIT_USAGE

#: of a command that judges a job
JUDGES = {
    EXIT_OK: "nothing of severity error",
    EXIT_NOTHING: "nothing to analyse",
    EXIT_UNREADABLE: "unreadable",
    EXIT_FINDINGS: "findings of severity error",
    EXIT_UNDECIDED: EXIT_CODES[EXIT_UNDECIDED],
}


def exits(codes: dict[int, str]) -> Callable[[click.Command], click.Command]:
    """Name a command's exit codes; 2 is every command's own."""

    def named(command: click.Command) -> click.Command:
        every = {EXIT_USAGE: "usage", **codes}
        command.epilog = "Exit codes: " + ", ".join(f"{code} {every[code]}" for code in sorted(every)) + "."
        return command

    return named
