"""`distdbg logs` (run): print what the ranks of a run printed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, BinaryIO

import click

from distdbg.cli.epilog import READS, examples, exits
from distdbg.cli.options import ranks_of, run_argument
from distdbg.collect.runs.log_follow import LOOK_EVERY_S, LineAssembler, LogFollower
from distdbg.collect.runs.log_reader import (
    STREAMS,
    Chunk,
    LogLine,
    choose_attempt,
    choose_ranks,
    lines_in_turn,
    losses,
    merged_lines,
    raw_chunks,
    stream_readers,
)
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.evidence.logs.lines import coloured, last_state, plain, rank_prefix, states
from distdbg.model import is_plausible_time
from distdbg.rundir import RunDir, find_run_dir
from distdbg.terminal import in_colour

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")


@exits(READS)
@examples(
    "distdbg logs --rank 3",
    "distdbg logs --follow --merge",
    "distdbg logs --grep 'loss [0-9.]+' distdbg-runs/latest",
)
@click.command("logs")
@run_argument
@click.option("--rank", "ranks", metavar="RANKS", help="Only these: 3, or 0-7, or 0,4-6. Default: all.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only standard output, or only standard error.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines in which this Python regular expression is found.")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print new lines until the run has ended, also those of new ranks and restarts.",
)
@click.option("--merge", is_flag=True, help="Order the lines of all ranks by time instead of by rank.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt N. Default: the newest.")
@click.option("--no-prefix", is_flag=True, help="Omit the prefix `[rank 3]`.")
@click.option("--times", is_flag=True, help="Print the time (UTC) before each line.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line: t, attempt, rank, stream, text, ended."
)
def command(
    *,
    run: str | None,
    ranks: str | None,
    stream: str | None,
    pattern: str | None,
    follow: bool,
    merge: bool,
    attempt: int | None,
    no_prefix: bool,
    times: bool,
    as_json: bool,
) -> None:
    """Show what the ranks of a run printed: all of them one after the other, or merged in time.

    RUN is a run directory, an id or a part of one; without it the newest run of this folder.

    Into a file or a pipe one rank alone comes byte by byte, its standard error to standard error (with --stream to
    standard output). On a terminal, for several ranks, and with --grep, --times or --merge it comes as lines: a
    progress bar is shown in its last state, and of terminal control sequences only colours are kept.

    Nothing is masked: these are your own logs. Secrets are masked in reports, which quote them.
    """
    expression = _compile(pattern)
    asked = ranks_of("--rank", ranks)
    wanted = tuple(sorted(asked)) if asked is not None else None
    found = find_run_dir(run)
    streams = (stream,) if stream else STREAMS
    lines = bool(merge or expression or times or as_json)
    raw = not lines and not sys.stdout.isatty()
    one = wanted is not None and len(wanted) == 1
    printer = _Printer(expression, prefix=not no_prefix and (lines or not one), times=times, as_json=as_json)
    with _broken_pipe_is_no_error():
        if follow:
            if attempt is not None:
                choose_attempt(found, attempt)
            targets = _targets(streams) if raw and one else None
            _follow(LogFollower(found, wanted, streams, attempt), printer, targets)
        chosen = choose_attempt(found, attempt)
        there = choose_ranks(chosen, wanted)  # after following, too: what was asked for may never have come
        readers = stream_readers(chosen, there, streams)
        if not any(reader.log.exists() for reader in readers):
            raise NothingToAnalyse(
                f"no log of {'these ranks' if len(there) > 1 else 'this rank'} was kept in attempt {chosen.number}",
                "A job launched with --no-capture prints to its terminal alone.",
            )
        if raw and len(there) == 1 and not follow:
            _write_raw(raw_chunks(readers), _targets(streams))
        elif not follow:
            printer.print(merged_lines(readers) if merge else lines_in_turn(readers))
    _say_losses(found, chosen.number, [(r.rank, r.stream) for r in readers])


@contextlib.contextmanager
def _broken_pipe_is_no_error() -> Iterator[None]:
    """`distdbg logs | head`: as with any other program, 128 + SIGPIPE and not a word."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


@dataclass
class _Printer:
    """Lines to standard output."""

    pattern: re.Pattern[str] | None
    prefix: bool
    times: bool
    as_json: bool

    def __post_init__(self) -> None:
        self.out = sys.stdout.buffer
        self.colour = in_colour(sys.stdout) and not self.as_json

    def print(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            data = self._searched(line.data)
            if data is not None:
                text = self._as_json(line, data) if self.as_json else self._as_text(line, data)
                self.out.write(text.encode("utf-8", "replace") + b"\n")

    def _searched(self, data: bytes) -> bytes | None:
        """What is shown of a line: the last state of it that matches; None where none does."""
        if self.pattern is None:
            return data if self.as_json else last_state(data)
        if b"\r" not in data:
            return data if self.pattern.search(plain(data)) else None
        return next((s for s in reversed(states(data)) if self.pattern.search(plain(s))), None)

    def _as_text(self, line: LogLine, data: bytes) -> str:
        time_text = _utc(line.t_ns) + " " if self.times else ""
        prefix = rank_prefix(line.rank) if self.prefix else ""
        if not self.colour:
            return time_text + prefix + plain(data)
        colour = _COLOURS[line.rank % len(_COLOURS)]
        return click.style(time_text, dim=True) + click.style(prefix, fg=colour) + coloured(data)

    def _as_json(self, line: LogLine, data: bytes) -> str:
        value: dict[str, Any] = {
            "t": line.t_ns / 1e9 if line.t_ns else None,
            "attempt": line.attempt,
            "rank": line.rank,
            "stream": line.stream,
            "text": data.decode("utf-8", "replace"),
            "ended": line.ended,
        }
        return json.dumps(value)


def _follow(follower: LogFollower, printer: _Printer, raw_to: dict[str, BinaryIO] | None) -> None:
    """Print lines until the run has ended and everything is shown, or until Ctrl-C."""
    assembler = LineAssembler()
    try:
        while True:
            chunks = follower.poll()
            if raw_to is not None:
                _write_raw(chunks, raw_to)
            else:
                printer.print(assembler.feed(chunks))
                printer.out.flush()
            if not chunks:
                if follower.has_ended():
                    break
                time.sleep(LOOK_EVERY_S)
        printer.print(assembler.rest())
    except KeyboardInterrupt:
        sys.exit(130)


def _targets(streams: tuple[str, ...]) -> dict[str, BinaryIO]:
    if len(streams) == 1:
        return {streams[0]: sys.stdout.buffer}
    return {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}


def _write_raw(chunks: Iterable[Chunk], targets: dict[str, BinaryIO]) -> None:
    """Write neighbouring chunks of one stream together, with one flush for all of them."""
    for stream, group in groupby(chunks, key=lambda chunk: chunk.stream):
        for chunk in group:
            targets[stream].write(chunk.data)
        targets[stream].flush()


def _say_losses(run: RunDir, attempt: int, shown: list[tuple[int, str]]) -> None:
    lost = losses(run.attempt(attempt))
    for rank, stream in shown:
        if (rank, stream) in lost:
            count, because = lost[rank, stream]
            click.echo(f"distdbg: {count} bytes of rank {rank}'s {stream} are missing: {because}", err=True)


def _utc(t_ns: int) -> str:
    """`2026-01-31T08:15:00.123Z`; as wide where the time is not known."""
    if not t_ns or not is_plausible_time(t_ns / 1e9):
        return "-" * 24
    moment = datetime.fromtimestamp(t_ns / 1e9, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as error:
        at = f" (at character {error.pos + 1})" if error.pos is not None else ""
        raise UsageError(
            f"--grep: {pattern!r} is no regular expression: {error.msg}{at}",
            "Write a backslash before a character that is meant as it is.",
        ) from None
