"""`distdbg top`: a running job's ranks on all nodes, what is wrong with them first."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from distdbg.errors import NothingToAnalyse
from distdbg.rundir import RunDir, find_run_dir

if TYPE_CHECKING:
    from distdbg.collect.run_tail import RunTail
    from distdbg.launch.top import Top

_KEYS = "q leaves · d asks where every rank stands (hang-dump)"
_LOOK_EVERY_S = 0.5


@click.command("top")
@click.argument("run", required=False)
@click.option("--once", is_flag=True, help="Print one look and return.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look (distdbg.top/1), until the run ends.")
@click.option("--interval", type=click.FloatRange(0.5, 3600), default=2.0, show_default=True,
              help="Seconds between looks.")  # fmt: skip
def command(run: str | None, once: bool, as_json: bool, interval: float) -> None:
    """Watch a run: its ranks with state, step, pace, phase and memory; failed, silent and late ones first.

    RUN is a run's directory, its id or a part of it; without one, the newest run in ./distdbg-runs. Figures come from
    the run directory, where agents write them every ten seconds. With more ranks than lines there is a line a node.

    Exit codes: 0, and 3 where the run has no record of any rank.
    """
    from distdbg.collect.run_status import run_status
    from distdbg.collect.run_tail import RunTail
    from distdbg.launch.top import Top

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
    for node_rank, event in tail.poll():
        top.take(node_rank, event)


def _print(top: Top, run: RunDir, *, as_json: bool) -> None:
    from rich.console import Console

    from distdbg.collect.run_status import run_status

    now = time.time() if run_status(run).live else top.heard
    if as_json:
        click.echo(json.dumps(top.as_json(now)))
        return
    Console(highlight=False).print(top.render(run.id, now, most=4096))


def _watch(tail: RunTail, top: Top, run: RunDir, interval: float) -> None:
    """On the terminal's other screen; what was there before is there again afterwards."""
    import select
    import termios
    import tty

    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            if before is not None:
                tty.setcbreak(sys.stdin)
            while True:
                _read(tail, top)
                live.update(top.render(run.id, time.time(), max(console.height - 3, 4), _KEYS), refresh=True)
                watched = [sys.stdin] if before is not None else []
                key = sys.stdin.read(1) if select.select(watched, [], [], interval)[0] else ""
                if key in ("q", "\x04"):
                    return
                if key == "d":
                    break
    except KeyboardInterrupt:
        return
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    sys.stdout.flush()
    from distdbg.cli.hang_dump import command as hang_dump

    hang_dump.main([str(run.path)], standalone_mode=False)
