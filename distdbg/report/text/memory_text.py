"""Render memory snapshots for a terminal: the peak by stack and kind, ranks side by side, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from distdbg.evidence.memory.answer import Holder, MemoryAnswer, Moment, gib
from distdbg.evidence.memory.diff import Change, Difference
from distdbg.evidence.memory.growth import Point, device_peak
from distdbg.evidence.memory.host_snapshot import HostSnapshot
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.plain_text import one_line
from distdbg.report.memory_report import MemoryUse
from distdbg.report.text.screen import ASCII, Screen
from distdbg.wording import counted, duration

MOST_ROWS = 14
_MOST_DEVICES = 6
_BAR = 16
_MOST_CALLERS = 3
_MOST_MODULES = 12


def memory_lines(block: MemoryUse, screen: Screen) -> list[str]:
    writer = _MemoryText(screen)
    answers = block.answers
    lines = block.ranks.splitlines()
    if len(answers) > 1:
        lines += ["", *writer.side_by_side(answers)]
    shown = sorted(answers, key=lambda a: -a.peak.active)[:_MOST_DEVICES] if len(answers) > _MOST_DEVICES else answers
    for answer in shown:
        lines += ["", *writer.answer(answer)]
    if len(shown) < len(answers):
        lines += ["", f"… and {len(answers) - len(shown)} more: --html and --json have them all"]
    return lines if lines and lines[0] else lines[1:]


def diff_lines(a: MemoryAnswer, b: MemoryAnswer, found: Sequence[Difference], screen: Screen) -> list[str]:
    writer = _MemoryText(screen)
    lines = [f"{name}  {title(one)}" for name, one in (("A", a), ("B", b))]
    cut = [name for name, one in (("A", a), ("B", b)) if one.overflowed]
    if cut:
        lines.append(f"the oldest events of {' and of '.join(cut)} were dropped: a peak before them is not known")
    for one in found:
        lines += ["", *writer.difference(one)]
    return lines


def title(answer: MemoryAnswer) -> str:
    events = f"{answer.events:,} events" if answer.events else "no trace: only the memory at its end"
    words = [one_line(answer.path), f"device {answer.device}", events]
    if answer.seconds:
        words.append(duration(answer.seconds))
    if answer.steps:
        words.append(f"{answer.steps} steps by {answer.steps_from}")
    return " · ".join(words)


def signed(size: int) -> str:
    return f"{'+' if size >= 0 else '-'}{gib(abs(size))}"


class _MemoryText:
    def __init__(self, screen: Screen) -> None:
        self.paint = screen.paint
        self.width = max(60, screen.width)
        self.bar = "#" if screen.symbols is ASCII else "█"

    def answer(self, answer: MemoryAnswer) -> Iterator[str]:
        peak = answer.peak
        yield self.paint("strong", title(answer))
        when = f", {peak.t:.3f} s in ({peak.when})" if peak.t is not None else f", {peak.when}" if answer.events else ""
        yield (
            f"  peak {self.paint('strong', gib(peak.active))} active of {gib(peak.reserved)} reserved{when}; "
            f"{gib(answer.start)} at the start, {gib(answer.end)} at the end"
        )
        yield f"  {self._kinds(peak)}"
        yield f"  made in: {' · '.join(f'{phase} {gib(size)}' for phase, size in peak.phases.items())}"
        yield ""
        yield from self._holders(answer, peak)
        if peak.modules:
            yield from ("", f"  {'by module':>9} (a number in a path is *)")
            yield from self._modules(peak)

    def _kinds(self, moment: Moment) -> str:
        return " · ".join(
            f"{kind} {gib(size)} ({100 * size / max(1, moment.active):.0f} %)" for kind, size in moment.kinds.items()
        )

    def _holders(self, answer: MemoryAnswer, moment: Moment) -> Iterator[str]:
        largest = moment.holders[0].bytes if moment.holders else 1
        for holder in moment.holders[:MOST_ROWS]:
            bar = self.bar * max(1, round(_BAR * holder.bytes / largest)) if holder.bytes else ""
            yield f"  {gib(holder.bytes):>9} {bar:<{_BAR}} {self._where(answer, holder)}"
        rest = moment.rest + sum(h.bytes for h in moment.holders[MOST_ROWS:])
        if rest:
            yield f"  {gib(rest):>9} {'':<{_BAR}} in smaller ones"

    def _modules(self, moment: Moment) -> Iterator[str]:
        sizes = {name: sum(kinds.values()) for name, kinds in moment.modules.items()}
        for name in list(sizes)[:_MOST_MODULES]:
            kinds = ", ".join(f"{kind} {gib(size)}" for kind, size in moment.modules[name].items())
            yield f"  {gib(sizes[name]):>9} {self.paint('strong', one_line(name))} ({kinds})"
        rest = moment.active - sum(list(sizes.values())[:_MOST_MODULES])
        if rest > 0:
            yield f"  {gib(rest):>9} in others, or in none that is known"

    def _where(self, answer: MemoryAnswer, holder: Holder) -> str:
        stack = answer.stacks[holder.stack]
        kind = next(iter(holder.kinds), "")
        names = one_line(holder.names)
        inner = f"in {one_line(stack.inner)}" if stack.inner and not names else ""
        of = ", ".join(filter(None, (kind, f"{holder.count} x", names, inner)))
        callers = one_line(" < ".join(stack.callers[1 : 1 + _MOST_CALLERS]))
        room = self.width - 13 - _BAR - len(stack.label) - len(of) - 5
        tail = f" < {callers}" if callers else ""
        tail = tail if len(tail) <= room else tail[: max(0, room - 1)] + "…" if room > 8 else ""
        return f"{self.paint('strong', one_line(stack.label))} ({of}){self.paint('dim', tail) if tail else ''}".rstrip()

    def side_by_side(self, answers: Sequence[MemoryAnswer]) -> Iterator[str]:
        yield f"  {'rank':>6} {'device':>6} {'peak':>10} {'reserved':>10} {'at end':>10}  largest at the peak"
        for answer in answers[:64]:
            named = next((h for h in answer.peak.holders if answer.stacks[h.stack].frames), None)
            largest = f"{answer.stacks[named.stack].label} {gib(named.bytes)}" if named else ""
            rank = "" if answer.rank is None else answer.rank
            yield (
                f"  {rank:>6} {answer.device:>6} {gib(answer.peak.active):>10} {gib(answer.peak.reserved):>10} "
                f"{gib(answer.end):>10}  {one_line(largest)}"
            )

    def difference(self, one: Difference) -> Iterator[str]:
        yield self.paint(
            "strong",
            f"{one.when}: active {gib(one.before)} -> {gib(one.after)} ({signed(one.after - one.before)}), "
            f"reserved {gib(one.reserved_before)} -> {gib(one.reserved_after)}",
        )
        kinds = [f"{kind} {signed(after - before)}" for kind, before, after in one.kinds if before != after]
        if kinds:
            yield f"  {' · '.join(kinds)}"
        for change in one.changes[:MOST_ROWS]:
            yield f"  {signed(change.grown):>10}  {self._change(change)}"
        if len(one.changes) > MOST_ROWS:
            rest = sum(change.grown for change in one.changes[MOST_ROWS:])
            yield f"  {signed(rest):>10}  in {len(one.changes) - MOST_ROWS} more"
        if any(one.others):
            before, after = one.others
            words = f"in stacks too small to be compared one by one ({gib(before)} -> {gib(after)})"
            yield f"  {signed(after - before):>10}  {words}"
        elif not one.changes:
            yield "  every stack holds the same"

    def _change(self, change: Change) -> str:
        counts = f"{change.count_before} -> {change.count_after} x"
        sizes = f"{gib(change.before)} -> {gib(change.after)}"
        inner = f", in {one_line(change.stack.inner)}" if change.stack.inner else ""
        callers = " < ".join(change.stack.callers[1 : 1 + _MOST_CALLERS])
        return f"{self.paint('strong', one_line(change.stack.label))} ({sizes}, {counts}{inner})" + (
            self.paint("dim", f" < {one_line(callers)}") if callers else ""
        )


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
