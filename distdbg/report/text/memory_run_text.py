"""Render the memory of a run's ranks over its steps, and their host snapshots, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.device_peak import device_peak
from distdbg.evidence.memory.growth import Point
from distdbg.evidence.memory.host_snapshot import HostSnapshot
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.plain_text import one_line
from distdbg.wording import counted

_MOST_RANKS = 8
_MOST_GROUPS = 10
_MOST_SNAPSHOTS = 2


def run_text(run: RunEvidence, snapshots: Sequence[HostSnapshot]) -> str:
    """Empty where nothing was written down."""
    series = [(rank, points) for rank in run.ranks if (points := run.memory_points(rank))]
    lines = [*_table(series), *(line for one in snapshots[:_MOST_SNAPSHOTS] for line in ("", *_host(one)))]
    if len(snapshots) > _MOST_SNAPSHOTS:
        lines += ["", f"… and the host snapshots of {counted(len(snapshots) - _MOST_SNAPSHOTS, 'more rank')}"]
    return "\n".join(lines).strip()


def _table(series: Sequence[tuple[RankRecord, Sequence[Point]]]) -> Iterator[str]:
    """The ranks that hold most; a rank far above the median is marked."""
    if not series:
        return
    yield "memory by rank, at the ends of steps"
    most = {rank.rank: max(p.anon for p in points) for rank, points in series}
    on_device = {
        rank.rank: peak.bytes
        for rank, _ in series
        if rank.memory is not None and (peak := device_peak(rank.memory)) is not None
    }
    for rank, points in sorted(series, key=lambda one: (-on_device.get(one[0].rank, 0), -most[one[0].rank]))[
        :_MOST_RANKS
    ]:
        yield (
            f"  rank {rank.rank:<5} steps {points[0].step} to {points[-1].step}: own memory {gib(points[0].anon)} -> "
            f"{gib(points[-1].anon)}, at most {gib(most[rank.rank])}{_beside(most, rank.rank)}"
        )
        yield from _device(points, on_device.get(rank.rank), _beside(on_device, rank.rank))
    if len(series) > _MOST_RANKS:
        yield f"  … and {len(series) - _MOST_RANKS} more, of {gib(min(most.values()))} and above"


def _beside(most: Mapping[int, int], rank: int) -> str:
    """A note on a rank that has much more than the median of three ranks or more."""
    if len(most) < 3 or rank not in most:
        return ""
    usual = median(most.values())
    return f", {most[rank] / usual:.1f} times the usual" if most[rank] > max(1.2 * usual, usual + (64 << 20)) else ""


def _device(points: Sequence[Point], highest: int | None, beside: str) -> Iterator[str]:
    """`highest` is torch's own maximum since the start, for any range of shown steps."""
    known = [p for p in points if p.reserved is not None]
    if not known:
        return
    words = [
        f"allocated {gib(known[0].standing or 0)} -> {gib(known[-1].standing or 0)}",
        *([f"at most {gib(highest)}{beside}"] if highest is not None else []),
        f"reserved at most {gib(max(p.reserved or 0 for p in known))}",
    ]
    outside = [p.used - (p.reserved or 0) for p in known if p.used is not None]
    words += [f"outside of torch {gib(outside[-1])}"] if outside else []
    yield f"             GPU: {', '.join(words)}"


def _host(one: HostSnapshot) -> Iterator[str]:
    figures = ", ".join(f"{name} {gib(size)}" for name, size in one.figures.items())
    yield f"rank {one.rank} at step {one.step} ({one_line(one.path)}): {figures}"
    yield f"  {one.tensors:,} live tensors, {one.with_graph:,} with a graph"
    for group in one.groups[:_MOST_GROUPS]:
        shape = "x".join(map(str, group.shape)) or "scalar"
        held = f"  {one_line(group.name)}" if group.name else ""
        held += f" ({one_line(group.file.rpartition('/')[2])})" if group.file else ""
        yield f"  {gib(group.bytes):>10}  {group.count:>5} x {shape} {group.dtype} {group.device}, {group.kind}{held}"
    if one.missing:
        yield f"  {one.missing}"
