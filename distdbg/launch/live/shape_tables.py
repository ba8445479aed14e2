"""Where the tables of `--watch shapes` are, or why there are none."""

from __future__ import annotations

import os

from distdbg.rundir import RunDir


def shapes_line(run: RunDir) -> str:
    """One line, for the end of a launch."""
    attempts = run.attempts()
    path = attempts[-1].rank(0).shapes if attempts else None
    if path is not None and path.is_file():
        return f"what each module takes and gives is in {os.path.relpath(path)}"
    return ("no shapes were seen: no forward of the model came, or it is compiled as a whole; "
            "distdbg.watch(model) names it where nobody else can")  # fmt: skip
