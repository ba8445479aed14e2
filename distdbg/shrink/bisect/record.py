"""Write the results of a search so far: bisect.json with every trial, reproduce.sh with the smallest that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distdbg.shrink.bisect.reducing import CONFIRMATIONS, Reduction
from distdbg.whole_file import write_json, write_whole

RECORD, SCRIPT = "bisect.json", "reproduce.sh"


def write_record(found: Reduction, folder: Path) -> None:
    write_json(folder / RECORD, as_json(found))
    script = folder / SCRIPT
    write_whole(script, f"#!/bin/sh\n# Shows {found.symptom.words}. Found by distdbg bisect.\n{found.smallest.text}\n")
    script.chmod(0o755)


def as_json(found: Reduction) -> dict[str, Any]:
    """Schema distdbg.bisect/1; `smallest_that_fails` of an axis is the next value below, null where none was left.
    `finished` is false while the search goes on, and after it was interrupted."""
    return {
        "schema": "distdbg.bisect/1",
        "from": found.trials.done[0].command.text,
        "to": found.smallest.text,
        "finished": found.confirmed is not None,
        "symptom": vars(found.symptom),
        "axes": [
            {"name": name, "from": axis.high, "to": result.value, "does_not_show": result.fails, "lowest": axis.low}
            for name, (axis, result) in found.found.items()
        ],
        "left_out": found.left_out,
        "confirmed": [found.confirmed or 0, CONFIRMATIONS],
        "trials": [
            {"run": f"{t.number:03d}", "command": t.command.text, "outcome": outcome, "exit_code": t.exit_code,
             "seconds": round(t.seconds, 2), "kept_layers": t.kept}
            for t, outcome in zip(found.trials.done, found.outcomes, strict=True)
        ],
    }  # fmt: skip


def lines(found: Reduction) -> Iterator[str]:
    """The result as lines for the terminal."""
    yield f"shows: {found.symptom.words}"
    for name, (axis, result) in found.found.items():
        why = f"{result.fails} does not show it" if result.fails is not None else "the lowest there is"
        yield (
            f"{name}: {axis.high} -> {result.value} ({why})"
            if result.value != axis.high
            else (f"{name}: {axis.high}, as it was ({why})")
        )
    for name, why in found.left_out.items():
        yield f"{name}: as it was; {why}"
    yield f"shown again by {found.confirmed} of {CONFIRMATIONS} runs"
    yield ""
    yield f"  {found.smallest.text}"
