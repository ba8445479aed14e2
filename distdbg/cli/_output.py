"""The type of every option that names a file to write: what cannot be replaced is refused before any work is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from distdbg.whole_file import refuse_odd_target


class OutputFile(click.Path):
    """A new file, or a regular one that is replaced; no folder, link, device or FIFO."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        path = Path(str(super().convert(value, param, ctx)))
        try:
            refuse_odd_target(path)
        except OSError as error:
            self.fail(f"{str(path)!r} is not written to: {error.strerror}", param, ctx)
        return path
