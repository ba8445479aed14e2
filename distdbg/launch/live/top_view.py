"""Draw `distdbg top` on a terminal: its rows, the chosen row, the keys. Pure, except for the drawing."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from distdbg.launch.live.state import RunState
from distdbg.launch.live.top import WELL, Top, TopRow
from distdbg.launch.live.view import summary
from distdbg.model import fold_ranks

if TYPE_CHECKING:
    from rich.console import RenderableType

_HELP = ("↑↓ choose", "→ a node's ranks", "← back", "d dump of all", "s snapshot, p profile of the chosen", "q leaves")
#: for a terminal on which the line above has no room
_SHORT_HELP = ("↑↓→← move", "d dump", "s snapshot", "p profile", "q leaves")
_STYLES = ("bold red", "bold red", "red", "yellow", "yellow", "")
_COLUMNS = ("node", "rank", "state", "step", "steps/s", "phase", "late", "data", "GPU", "GPU mem", "°C", "memory",
            "host left", "")  # fmt: skip
_ALWAYS = ("node", "rank", "state", "")
_DROPPED_FIRST = ("phase", "host left", "steps/s", "memory", "°C", "GPU mem", "data", "late", "GPU", "state")
#: Between columns; and the least that is left for the words on what is wrong, where they are as long.
_GAP, _WORDS = 2, 36
#: Lines that are not rows: title, header, keys.
_OTHER_LINES = 3


class TopView:
    """The view's selection. `node` is the one whose ranks are shown, None for all."""

    def __init__(self, top: Top) -> None:
        self.top = top
        self.node: int | None = None
        self.chosen: TopRow | None = None
        self._rows: list[TopRow] = []
        self._first = 0

    def look(self, now: float, height: int) -> None:
        """Take the rows as they are now; the chosen one stays the chosen one, wherever it has gone."""
        room = max(height - _OTHER_LINES, 3)
        self._rows = self.top.rows(now, room, self.node)
        index = self._index()
        self.chosen = None if index is None else self._rows[index]
        if index is not None:
            self._first = min(max(self._first, index - room + 1), index)
        self._first = max(0, min(self._first, len(self._rows) - room))

    def key(self, key: str) -> None:
        """up, down, page-up, page-down, in, out."""
        move = {"up": -1, "down": 1, "page-up": -10, "page-down": 10}.get(key)
        if move is not None and self._rows:
            index = self._index()
            index = (0 if move > 0 else len(self._rows) - 1) if index is None else index + move
            self.chosen = self._rows[max(0, min(index, len(self._rows) - 1))]
        elif key == "in" and self.chosen is not None and len(self.chosen.ranks) > 1:
            self.node, self.chosen, self._first = self.chosen.ranks[0].node_rank, None, 0
        elif key == "out" and self.node is not None:
            self.node, self.chosen, self._first = None, None, 0
        elif key == "out":
            self.chosen = None

    @property
    def ranks(self) -> str:
        """The chosen ones that run, as people write them; empty for none."""
        chosen = self.chosen.ranks if self.chosen is not None else ()
        return fold_ranks(rank.rank for rank in chosen if rank.state == "running")

    def _index(self) -> int | None:
        ids = [row.id for row in self._rows] if self.chosen is not None else []
        return ids.index(self.chosen.id) if self.chosen is not None and self.chosen.id in ids else None

    def render(self, title: str, width: int, height: int, said: str = "") -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        room = max(height - _OTHER_LINES, 3)
        shown = self._rows[self._first : self._first + room]
        left = len(self._rows) - len(shown)
        lines = (f"lines {self._first + 1}-{self._first + len(shown)} of {len(self._rows)}",) if left else ()
        offered = " · ".join((*lines, *_HELP))
        offered = offered if len(offered) <= width else " · ".join((*_SHORT_HELP, *lines))
        where = f"  node {self.node}" if self.node is not None else ""
        table = table_of(shown, width, None if self.chosen is None else self.chosen.id)
        head = Text.assemble((title, "bold"), f"{where}  {summary(self.top.state)}", no_wrap=True, overflow="ellipsis")
        keys = Text(said or offered, style="bold" if said else "dim", no_wrap=True, overflow="ellipsis")
        return Group(head, table, keys)


def table_of(rows: list[TopRow], width: int, chosen: tuple[int, int] | None = None) -> RenderableType:
    """Columns without any figure are left out, and those for which a narrow terminal has no room."""
    from rich.table import Table

    cells = [dict(zip(_COLUMNS, _cells(row), strict=True)) for row in rows]
    wide = {name: max([len(name), *(len(cell[name]) for cell in cells)]) for name in _COLUMNS}
    kept = [name for name in _COLUMNS if name in _ALWAYS or any(cell[name] for cell in cells)]
    for name in _DROPPED_FIRST:
        if sum(wide[n] + _GAP for n in kept if n) + min(wide[""], _WORDS) > width and name in kept:
            kept.remove(name)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for name in kept:
        left = name in ("node", "state", "phase", "")
        least = wide[name] if name else None
        table.add_column(name, justify="left" if left else "right", header_style="dim", no_wrap=True, min_width=least)
    for row, cell in zip(rows, cells, strict=True):
        style = _STYLES[row.trouble] + (" reverse" if row.id == chosen else "")
        table.add_row(*(cell[name] or ("-" if name == "late" else "") for name in kept), style=style.strip())
    return table


def _cells(row: TopRow) -> tuple[str, ...]:
    part = RunState(ranks={rank.rank: rank for rank in row.ranks})
    states = {state: len(part.with_state(state)) for state in sorted({rank.state for rank in row.ranks})}
    state = ", ".join(f"{count} {name}" for name, count in states.items()) if len(row.ranks) > 1 else next(iter(states))
    phases = {rank.phase for rank in row.ranks if rank.state == "running" and rank.phase}
    waits = [rank.data_wait for rank in row.ranks if rank.data_wait is not None]
    late = [rank.late_ms for rank in row.ranks if rank.late_ms is not None and rank.state == "running"]
    heat = [rank.gpu_heat for rank in row.ranks if rank.gpu_heat is not None]
    alone = len(row.ranks) == 1
    return (
        row.host,
        fold_ranks(part.ranks),
        state,
        "" if part.step is None else str(part.step),
        f"{part.rate:.3g}" if part.rate else "",
        phases.pop() if len(phases) == 1 else "",
        _milliseconds(max(late)) if late else "",
        f"{100 * max(waits):.0f} %" if waits else "",
        _busy(row),
        _gpu_memory(row),
        str(max(heat)) if heat else "",
        f"{sum(rank.rss or 0 for rank in row.ranks) / 2**30:.2f} GiB" if any(rank.rss for rank in row.ranks) else "",
        f"{row.node.available / 2**30:.0f} GiB" if row.node.available is not None and not alone else "",
        row.words if row.trouble < WELL else "",
    )


def _milliseconds(late: float) -> str:
    return f"{late:.1f} ms" if late < 10 else f"{late:.0f} ms" if late < 10_000 else f"{late / 1000:.0f} s"


def _busy(row: TopRow) -> str:
    """How busy the GPUs of a row are: all devices of a node where their ranks are not known; of several the median."""
    own = [rank.gpu_busy for rank in row.ranks if rank.gpu_busy is not None]
    busy = own or (list(row.node.gpu_busy) if len(row.ranks) > 1 else [])
    return f"{median(busy):.0f} %" if busy else ""


def _gpu_memory(row: TopRow) -> str:
    """Used and total memory of the row's device; of several the fullest."""
    known = [(r.gpu_used, r.gpu_total) for r in row.ranks if r.gpu_used and r.gpu_total]
    if not known:
        return ""
    used, total = max(known, key=lambda pair: pair[0] / pair[1])
    return f"{used / 2**30:.0f}/{total / 2**30:.0f} GiB"
