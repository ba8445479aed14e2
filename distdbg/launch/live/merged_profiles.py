"""Merge the ranks' traces at the end of a launch with --profile, as `distdbg profile` does."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from distdbg.collect.runs.run_profiles import ProfileSet, sets_of
from distdbg.errors import DistdbgError
from distdbg.evidence.trace.clock import words
from distdbg.launch.io.loop import handled
from distdbg.model import fold_ranks
from distdbg.plain_text import one_line
from distdbg.terminal import unguarded

if TYPE_CHECKING:
    from distdbg.rundir import RunDir

#: A MB takes about half a second, and a batch job's nodes would wait for it.
_MOST_BYTES = 32 << 20
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HOW = "`distdbg profile {}` reads and merges them"


def say_profiles(run: RunDir) -> None:
    """Print the path of the merged profiles with the clocks' error; for many ranks, the command that merges them. A
    signal to end stops only the merge."""
    attempts, how = run.attempts(), _HOW.format(os.path.relpath(run.path))
    try:
        with handled(_ENDING, signal.default_int_handler):
            for found in sets_of(attempts[-1]) if attempts else ():
                what = f"profiles of steps {found.first}-{found.last} of ranks {fold_ranks(sorted(found.files))}"
                _say(f"{what}: {_merged(found) or how}")
    except KeyboardInterrupt:
        _say(f"the profiles were not merged: {how}")


def _merged(found: ProfileSet) -> str:
    """Empty where the user has to merge them."""
    try:
        if sum(path.stat().st_size for path in found.files.values()) > _MOST_BYTES:
            return ""
        merged = found.merge(_progress)
    except (OSError, DistdbgError) as error:
        _say(f"the profiles were not merged: {error}")
        return ""
    finally:
        _progress("")
    return f"{os.path.relpath(merged.path)}, for ui.perfetto.dev\n  {words(merged.clocks)}"


def _progress(text: str) -> None:
    """On a terminal only; the empty text wipes it."""
    if sys.stderr.isatty():
        unguarded(sys.stderr).write(f"\r\x1b[K{f'distdbg: {one_line(text)} …' if text else ''}")
        sys.stderr.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"distdbg: {text}\n")
