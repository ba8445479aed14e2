"""`distdbg completion SHELL` (housekeeping): print the script with which a shell completes commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from distdbg.cli.epilog import examples, exits

_HOW = {
    "bash": 'eval "$(distdbg completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(distdbg completion zsh)"           # in ~/.zshrc, after compinit',
    "fish": "distdbg completion fish | source           # in ~/.config/fish/config.fish",
}


@exits({0: "done"})
@examples(*_HOW.values())
@click.command("completion")
@click.argument("shell", type=click.Choice(sorted(_HOW)))
def command(shell: str) -> None:
    """Print the completion script for a shell."""
    from distdbg.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # one of click's own
    click.echo(kind(cli, {}, "distdbg", "_DISTDBG_COMPLETE").source())
