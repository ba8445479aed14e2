"""`distdbg man FOLDER` (housekeeping): write a man page for each command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from distdbg import __version__
from distdbg.cli.epilog import examples, exits
from distdbg.errors import EXIT_REFUSED, Refused
from distdbg.whole_file import write_whole


@exits({0: "done", EXIT_REFUSED: "FOLDER cannot be written to"})
@examples("distdbg man ~/.local/share/man/man1  # then: man distdbg-hang-dump")
@click.command("man")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> None:
    """Write a man page for each command to FOLDER, from its help.

    man looks into share/man/man1 beside each bin folder of PATH: in a virtual environment's own, or in
    ~/.local/share/man/man1 where ~/.local/bin is in PATH.
    """
    from distdbg.cli import cli

    written = {f"{path.replace(' ', '-')}.1": _page(path, page) for path, page in _commands(cli, "distdbg")}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_whole(folder / name, text, private=False)
    except OSError as error:
        raise Refused(f"{folder} cannot be written to: {error.strerror or error}", "Name another folder.") from None
    click.echo(f"{len(written)} pages in {folder}")


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
