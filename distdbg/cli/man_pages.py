"""The man page of each command, from its help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from distdbg import __version__
from distdbg.cli import cli


class ManFormatter(click.HelpFormatter):
    """Takes what click's formatter takes, and writes roff."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002 -- click's own
        self.write(f".SH SYNOPSIS\n.B {_roff(prog)}\n{_roff(args)}\n.SH DESCRIPTION\n")

    def write_heading(self, heading: str) -> None:
        self.write(f'.SH "{_roff(heading.upper())}"\n')

    def write_paragraph(self) -> None:
        """Each text begins one of its own."""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write_heading(name)
        yield

    def write_text(self, text: str) -> None:
        for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
            lines = [line.strip() for line in paragraph.splitlines()]
            if lines[0] == "\b":
                self.write(".PP\n.nf\n" + "".join(f"{_roff(line)}\n" for line in lines[1:]) + ".fi\n")
            else:
                self.write(f".PP\n{_roff(' '.join(lines))}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:  # noqa: ARG002
        for name, text in rows:
            self.write(f".TP\n.B {_roff(name.strip())}\n{_roff(' '.join(text.split()))}\n")


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def pages() -> dict[str, str]:
    """File name -> roff: the command line's own page, and one for each command and command of a command."""
    return {f"{path.replace(' ', '-')}.1": _page(path, command) for path, command in _commands(cli, "distdbg")}


def _page(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    formatter = ManFormatter()
    command.format_help(context, formatter)
    name = path.replace(" ", "-")
    summary = " ".join(command.get_short_help_str(200).split()).rstrip(".")
    head = f'.TH "{_roff(name.upper())}" 1 "" "distdbg {__version__}" "distdbg"\n.SH NAME\n'
    return f"{head}{_roff(name)} \\- {_roff(summary)}\n{formatter.getvalue()}"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        elif command is not None and not command.hidden:
            yield f"{path} {name}", command
