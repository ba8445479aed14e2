"""`distdbg top` (run): watch the ranks of a running job, the failing ones first."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import READS, examples, exits
from distdbg.cli.options import SecondsRange, run_argument
from distdbg.errors import NothingToAnalyse
from distdbg.rundir import RunDir, find_run_dir
from distdbg.terminal import unguarded

if TYPE_CHECKING:
    from distdbg.collect.runs.run_tail import RunTail
    from distdbg.launch.live.top import Top
    from distdbg.launch.live.top_view import TopView

#: More ranks than that are printed a line a node.
_MOST_PRINTED = 256
#: Of a pipe, which has none: all columns fit.
_PIPE_WIDTH = 180
_ASK = {"d": ["hang-dump"], "s": ["memory", "snapshot"], "p": ["profile", "--steps", "5"]}
_KEY = re.compile(r"\x1b[\[O][A-D]|\x1b\[[56]~|\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {"\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
          "\x1b[C": "in", "\x1bOC": "in", "\n": "in", "\x1b[D": "out", "\x1bOD": "out", "\x7f": "out",
          "\x1b[5~": "page-up", "\x1b[6~": "page-down", "q": "leave", "\x04": "leave"}  # fmt: skip


@exits(READS)
@examples("distdbg top", "distdbg top --once distdbg-runs/latest")
@click.command("top")
@run_argument
@click.option("--once", is_flag=True, help="Print the ranks once and return.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per interval (distdbg.top/1), until the run ends."
)
@click.option("--interval", type=SecondsRange(0.5, 3600), default=2.0, show_default=True,
              help="Seconds between updates.")  # fmt: skip
def command(run: str | None, once: bool, as_json: bool, interval: float) -> None:
    """Watch a run: its ranks with step, pace, phase, wait for data, GPU and memory; failing ranks first.

    RUN is a run's directory, its id or a part of it; without one, the newest run in ./distdbg-runs. The agents write
    the values into the run directory every ten seconds. If there are more ranks than lines, each line is a node, and →
    shows the ranks of a node. The keys d, s and p take a hang dump, a memory snapshot or a profile.
    """
    from distdbg.collect.runs.run_status import run_status
    from distdbg.collect.runs.run_tail import RunTail
    from distdbg.launch.live.top import Top

    folder = find_run_dir(run)
    tail, top = RunTail(folder), Top()
    _read(tail, top)
    if not top.state.ranks:
        raise NothingToAnalyse(
            f"the run {folder.id} has no record of any rank yet", "Wait until its ranks have started."
        )
    if once or not (as_json or sys.stdout.isatty()):
        _print(top, folder, as_json=as_json)
        return
    if as_json:
        while True:
            _print(top, folder, as_json=True)
            if run_status(folder).live is not True:
                return
            time.sleep(interval)
            _read(tail, top)
    _watch(tail, top, folder, interval)


def _read(tail: RunTail, top: Top) -> None:
    came, now = tail.poll(), time.time()
    for node_rank, event in came:
        top.take(node_rank, event, now)


def _print(top: Top, run: RunDir, *, as_json: bool) -> None:
    from rich.console import Console

    from distdbg.launch.live.top_view import table_of
    from distdbg.launch.live.view import summary

    now = time.time()
    if as_json:
        click.echo(json.dumps(top.as_json(now)))
        return
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(highlight=False, width=None if known else _PIPE_WIDTH)
    console.print(f"{run.id}  {summary(top.state)}", markup=False, soft_wrap=True)
    console.print(table_of(top.rows(now, most=_MOST_PRINTED), console.width))


def _watch(tail: RunTail, top: Top, run: RunDir, interval: float) -> None:
    """On the terminal's other screen; what was there before is there again afterwards."""
    from distdbg.launch.live.top_view import TopView

    view = TopView(top)
    while asked := _look(view, tail, run, interval):
        _do(asked)


def _look(view: TopView, tail: RunTail, run: RunDir, interval: float) -> list[str]:
    """Show the view until a key asks for another command, and return its words; no words at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, file=unguarded(sys.stdout))
    said, due = "", 0.0
    try:
        with _keys() as read, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                if time.monotonic() >= due:
                    _read(tail, view.top)
                    due = time.monotonic() + interval
                view.look(time.time(), console.height)
                live.update(view.render(run.id, console.width, console.height, said), refresh=True)
                said = ""
                for key in read(max(0.0, due - time.monotonic())):
                    if key == "leave":
                        return []
                    if key in _ASK and key != "d" and not view.ranks:
                        said = "first choose a running rank or a node: ↑ ↓"
                    elif key in _ASK:
                        return [*_ASK[key], str(run.path), *([] if key == "d" else ["--ranks", view.ranks])]
                    view.key(key)
    except KeyboardInterrupt:
        return []


def _do(words: list[str]) -> None:
    """Another command, below what the terminal showed; the view comes back when it has been read."""
    from distdbg.cli import run

    click.echo(f"distdbg {' '.join(words)}")
    with contextlib.suppress(KeyboardInterrupt):
        run(words)
    with contextlib.suppress(KeyboardInterrupt), _keys() as read:
        click.echo("distdbg: any key: back to top", err=True)
        read(None)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float | None], list[str]]]:
    """Gives what waits so long for keys and names them; without a terminal for input, what only waits."""
    import select
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _no_keys
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: _named(os.read(descriptor, 64)) if select.select([descriptor], [], [], seconds)[0] else []
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _no_keys(seconds: float | None) -> list[str]:
    time.sleep(seconds or 0.0)
    return []


def _named(typed: bytes) -> list[str]:
    """What the view calls the keys; others by themselves. Nothing typed is a terminal that has gone away."""
    found = _KEY.findall(typed.decode("utf-8", "replace"))
    return [_NAMES.get(key, key) for key in found] if typed else ["leave"]
