"""Where a step's time goes, for a terminal: a row a rank, the GPU and why it waits, the dearest operators."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from distdbg.evidence.trace.device import Device
from distdbg.evidence.trace.gpu_window import Watched
from distdbg.evidence.trace.phases import PARTS
from distdbg.evidence.trace.profile import Dear, RankProfile, Row
from distdbg.plain_text import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Of more ranks the slowest, by what they do themselves, are shown.
_MOST_RANKS = 24
_MOST_ROWS = 8
#: Columns of a table that nobody cuts.
_WIDEST = 400
#: A GPU that is busier is not asked why.
_BUSY = 0.80
#: A reason for idleness below this share of the step is not told.
_WORTH = 0.02
#: Nor is a line that costs less.
_LEAST = 0.005
#: What a line does that costs.
_KINDS = {
    "wait": "reads values",
    "transfer": "copies pageable memory",
    "blocking": "waits for its copy",
    "copy": "lays tensors out anew",
    "alloc": "allocates",
    "constant": "makes a constant",
    "attention": "attention on the math path",
    "masked": "attention with a mask",
    "load": "loads data",
    "workers": "starts workers",
    "buffers": "broadcasts buffers",
    "parallel": "DataParallel",
    "small": "many small operators",
}
_TRY = {
    "data wait": "the loader is too slow: num_workers, persistent_workers, pin_memory",
    "synchronisation": "values read on the host: the lines stand below",
    "transfers": "copies to and from the host: pin_memory=True with non_blocking=True",
    "allocations": "cudaMalloc in the steps: the lines stand below",
    "small kernels": "kernels shorter than their launch: torch.compile, CUDA graphs, larger batches",
    "host": "the host launches too slowly (CPU-bound): torch.compile, less Python in the step",
}


def profile_text(profiles: Sequence[RankProfile], *, color: bool, width: int) -> str:
    """Without a newline at its end; times in ms of a typical step."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="standard" if color else None,
                      highlight=False, markup=False, emoji=False)  # fmt: skip
    shown = sorted(profiles, key=_own, reverse=True)[:_MOST_RANKS] if len(profiles) > _MOST_RANKS else profiles
    _parts(console, shown)
    if len(shown) < len(profiles):
        console.print(f"… and {len(profiles) - len(shown)} more ranks, which do less themselves: --json has them all")
    devices = [p for p in shown if p.device is not None or p.watched is not None]
    if devices:
        console.print()
        for line in _gpu(devices):
            console.print(line)
    slowest = max(profiles, key=_own, default=None)
    if slowest is not None:
        _places(console, slowest)
        _rows(console, f"operators of {slowest.who} by their own time on the host", slowest, slowest.operators)
        _rows(console, f"kernels of {slowest.who}", slowest, slowest.kernels)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def _own(profile: RankProfile) -> float:
    """What a rank does itself: who waits for others has a long step, too."""
    return profile.step_us - profile.parts.get("communication", 0.0)


def _parts(console: Console, profiles: Sequence[RankProfile]) -> None:
    """Shares go first where the terminal is narrow; no figure is ever cut."""
    table, width = _table(profiles, shares=True), console.width
    if console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum > width:
        table = _table(profiles, shares=False)
        width = max(width, console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum)
    given, console.width = console.width, width
    console.print(table)
    console.width = given
    first = profiles[0]
    cut = f"{first.counted}, cut by {first.by}" if first.steps else "no steps: all"
    console.print(f"mean of the middle half of the steps ({cut}); communication is what nothing hid", style="dim")


def _table(profiles: Sequence[RankProfile], *, shares: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    on_devices = any(profile.device is not None for profile in profiles)
    for name in ("step ms", *PARTS, "hidden", *(["idle"] if on_devices else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for profile in profiles:
        cells = [_cell(profile, profile.parts.get(part, 0.0), shares=shares) for part in PARTS]
        idle = [_idle(profile, shares=shares)] if on_devices else []
        table.add_row(one_line(profile.who), _ms(profile.step_us), *cells, _ms(profile.hidden_us), *idle)
    return table


def _idle(profile: RankProfile, *, shares: bool) -> str:
    """While no kernel ran, whatever the host was at."""
    if profile.device is None:
        return "-"
    return _cell(profile, (1.0 - profile.device.busy) * profile.step_us, shares=shares)


def _cell(profile: RankProfile, us: float, *, shares: bool) -> str:
    if not us:
        return "-"
    return f"{_ms(us)} {profile.share(us):>4.0%}" if shares else _ms(us)


def _ms(us: float) -> str:
    return f"{us / 1000:.2f}" if us < 100_000 else f"{us / 1000:.0f}"


def _gpu(profiles: Sequence[RankProfile]) -> Iterator[str]:
    for profile in profiles:
        device = profile.device
        if device is not None:
            yield (
                f"{one_line(profile.who)}: GPU {device.number} busy {device.busy:.0%} of the step; "
                f"{device.kernels_per_step:.0f} kernels, median {device.kernel_median_us:.1f} us; "
                f"{device.gaps_per_step:.0f} gaps, the longest {device.longest_gap_us / 1000:.2f} ms"
            )
        if profile.watched is not None:
            yield f"{'  ' if device is not None else f'{one_line(profile.who)}: '}{_nvml(profile.watched)}"
        if device is not None and device.busy < _BUSY:
            yield from _why(device)


def _nvml(seen: Watched) -> str:
    """Apart from the kernels' time: it counts everybody's, and by its own clock."""
    looks = f"{seen.looks} looks" if seen.looks > 1 else "one look"
    when = "in these steps" if seen.within else "just before or after: none was in these steps"
    return f"NVML: {seen.busy:.0%} busy ({'the median of ' if seen.looks > 1 else ''}{looks} {when})"


def _why(device: Device) -> Iterator[str]:
    for reason, share in sorted(device.idle.items(), key=lambda item: -item[1]):
        if share >= _WORTH:
            yield f"  idle {share:>4.0%}  {reason:<16} {_TRY[reason]}"


def _places(console: Console, profile: RankProfile) -> None:
    """Also what is too cheap for a finding: much of it makes a slow step, too."""
    dear = sorted((d for d in profile.dear if profile.share(d.gain_us) >= _LEAST), key=lambda d: -d.gain_us)
    rows = [Row(f"{d.where} {_KINDS.get(d.kind, d.kind)}{_by(d)}", d.gain_us, d.calls) for d in dear]
    _rows(console, f"lines of {profile.who}, and what they cost at most", profile, rows)


def _by(dear: Dear) -> str:
    return f" by {dear.place.callee}()" if dear.place and dear.place.callee else ""


def _rows(console: Console, title: str, profile: RankProfile, rows: Sequence[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=True)
    for name in ("ms", "of step", "calls"):
        table.add_column(name, justify="right")
    table.add_column(one_line(title), no_wrap=True, overflow="ellipsis")
    for row in rows[:_MOST_ROWS]:
        cells = (f"{row.us / 1000:.3f}", f"{profile.share(row.us):.0%}", f"{row.calls:.0f}")
        table.add_row(*cells, Text(one_line(row.name)))
    console.print(table)
