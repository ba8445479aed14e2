"""`distdbg man FOLDER` (housekeeping): write a man page for each command."""

from __future__ import annotations

from pathlib import Path

import click

from distdbg.cli.epilog import examples, exits
from distdbg.errors import EXIT_REFUSED, Refused


@exits({0: "done", EXIT_REFUSED: "FOLDER cannot be written to"})
@examples("distdbg man ~/.local/share/man/man1  # then: man distdbg-hang-dump")
@click.command("man")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> None:
    """Write a man page for each command to FOLDER, from its help.

    man looks into share/man/man1 beside each bin folder of PATH: in a virtual environment's own, or in
    ~/.local/share/man/man1 where ~/.local/bin is in PATH.
    """
    from distdbg.cli.man_pages import pages
    from distdbg.whole_file import write_whole

    written = pages()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_whole(folder / name, text, private=False)
    except OSError as error:
        raise Refused(f"{folder} cannot be written to: {error.strerror or error}", "Name another folder.") from None
    click.echo(f"{len(written)} pages in {folder}")
