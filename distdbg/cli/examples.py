"""Examples at the end of a command's help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=click.Command)


def examples(*lines: str) -> Callable[[_Decorated], _Decorated]:
    """Show these command lines in the help, each on its own line: click does not wrap them."""
    text = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])

    def shown(command: _Decorated) -> _Decorated:
        command.epilog = text
        return command

    return shown
