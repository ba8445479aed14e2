"""The view while a job runs: a table that stays at the bottom of a terminal, or one plain line every 30 s."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from distdbg.evidence.logs.lines import coloured, plain
from distdbg.launch.live.console import Shown
from distdbg.launch.live.state import RankState, RunState
from distdbg.model import fold_ranks
from distdbg.plain_text import clean
from distdbg.terminal import is_behind, unguarded

if TYPE_CHECKING:
    from rich.console import RenderableType

_PLAIN_EVERY_S = 30.0
_DRAW_EVERY_S = 0.25
#: More ranks than this are shown a line a node.
_MOST_ROWS = 16
_STYLE = {"running": "green", "failed": "bold red", "stopped": "yellow", "finished": "dim", "starting": "cyan"}


class PlainView:
    """One line every 30 s on standard error: for logs, batch jobs and pipes. The console writes by itself."""

    live = False

    def __init__(self, state: RunState, out: TextIO | None = None) -> None:
        self._state = state
        self._out = out or sys.stderr
        self._started = self._last = time.monotonic()

    def tick(self, _shown: Shown) -> None:
        now = time.monotonic()
        if now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            self.say(f"{summary(self._state)}, {_clock(now - self._started)}")

    def print_lines(self, _shown: Shown) -> None:
        pass

    def say(self, text: str) -> None:
        print(f"distdbg: {text}", file=self._out, flush=True)

    def show(self, text: str) -> None:
        """A report, which may carry colours."""
        print(text, file=self._out, flush=True)

    def close(self) -> None:
        pass


class LiveView:
    """A table under the ranks' output. Lines go above it; an unfinished line (a progress bar) is in it."""

    live = True

    def __init__(self, state: RunState, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._state = state
        self._title = title
        self._started = time.monotonic()
        self._last = 0.0
        self._partial: list[bytes] = []
        self._console = Console(file=unguarded(sys.stderr), highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()

    def tick(self, shown: Shown) -> None:
        """Lines of the shown ranks go above the table. A terminal that was stopped (Ctrl-S) is not drawn on."""
        self.print_lines(shown)
        if is_behind(sys.stderr):
            return
        self._partial = shown.partial
        now = time.monotonic()
        if now - self._last >= _DRAW_EVERY_S:
            self._last = now
            self._live.update(self._render(), refresh=True)

    def print_lines(self, shown: Shown) -> None:
        """Also after `close`."""
        from rich.text import Text

        for line in shown.lines:
            self._console.print(Text.from_ansi(coloured(line)), soft_wrap=True)

    def say(self, text: str) -> None:
        self._console.print(f"distdbg: {clean(text)}", markup=False)

    def show(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        self._live.update("", refresh=True)
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        elapsed = _clock(time.monotonic() - self._started)
        title = Text.assemble((self._title, "bold"), f"  {summary(self._state)}  {elapsed}")
        table = Table(box=None)
        for column, justify in (("node", "left"), ("rank", "right"), ("state", "left"), ("step", "right"),
                                ("steps/s", "right"), ("phase", "left"), ("memory", "right")):  # fmt: skip
            table.add_column(column, justify=justify, header_style="dim")  # type: ignore[arg-type]
        for row, style in self._rows():
            table.add_row(*row, style=style)
        bars = [Text(plain(p.rpartition(b"\r")[2])) for p in self._partial]
        return Group(*bars, title, table)

    def _rows(self) -> list[tuple[list[str], str]]:
        ranks = [self._state.ranks[r] for r in sorted(self._state.ranks)]
        if len(ranks) <= _MOST_ROWS:
            return [(_rank_row(r, self._host(r.node_rank)), _STYLE.get(r.state, "")) for r in ranks]
        nodes = sorted({r.node_rank for r in ranks})
        rows = [self._node_row(n, [r for r in ranks if r.node_rank == n]) for n in nodes]
        worst_first = sorted(rows, key=lambda row: row[1] != _STYLE["failed"])
        return worst_first[:_MOST_ROWS]

    def _node_row(self, node_rank: int, ranks: list[RankState]) -> tuple[list[str], str]:
        part = RunState(ranks={r.rank: r for r in ranks})
        states = ", ".join(
            f"{len(part.with_state(s))} {s}"
            if s != "failed"
            else f"{fold_ranks(r.rank for r in part.with_state(s))} {s}"
            for s in _STYLE
            if part.with_state(s)
        )
        row = [self._host(node_rank), fold_ranks(part.ranks), states, _number(part.step), _rate(part.rate), "",
               _memory(part.rss)]  # fmt: skip
        return row, _STYLE["failed"] if part.with_state("failed") else ""

    def _host(self, node_rank: int) -> str:
        return f"{node_rank} {self._state.hosts.get(node_rank, '')}".strip()


def make_view(state: RunState, title: str) -> LiveView | PlainView:
    """The table if standard output and standard error are a terminal that can show it, else plain lines."""
    live = sys.stderr.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return LiveView(state, title) if live else PlainView(state)


def summary(state: RunState) -> str:
    """`4 ranks running, step 120, 12.3 steps/s, slowest rank 3 at step 118, 1.2 GiB`."""
    counts = [f"{len(state.with_state(s))} {s}" for s in _STYLE if state.with_state(s)]
    if not counts:
        return "starting"
    words = [f"{len(state.ranks)} rank{'s' * (len(state.ranks) != 1)}: {', '.join(counts)}"]
    if state.step is not None:
        words.append(f"step {state.step}")
    if state.rate:
        words.append(f"{state.rate:.3g} steps/s")
    if state.slowest is not None:
        words.append(f"slowest rank {state.slowest.rank} at step {state.slowest.step}")
    if state.rss:
        words.append(_memory(state.rss))
    return ", ".join(words)


def _rank_row(rank: RankState, host: str) -> list[str]:
    phase = rank.phase or "" if rank.state == "running" else ""
    state = rank.state if not rank.exit_code else f"{rank.state} ({rank.exit_code})"
    return [host, str(rank.rank), state, _number(rank.step), _rate(rank.rate), phase, _memory(rank.rss)]


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _rate(value: float | None) -> str:
    return f"{value:.3g}" if value else ""


def _memory(value: int | None) -> str:
    return f"{value / 2**30:.2f} GiB" if value else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
