"""Compute charts over the steps of a run: findings, step times, memory, loss and gradients on one axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from distdbg.evidence.host.gpus import RankLook
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.training.overfitting import losses
from distdbg.model import Finding, Report, fold_ranks
from distdbg.report.document import Block
from distdbg.report.page.rank_curves import Curve, CurveChart, curve_chart, place
from distdbg.report.page.timeline import milliseconds, times_words

_MOST_FINDINGS = 24
#: Lines through all rows, where errors were.
_MOST_RULES = 3
#: With fewer samples the boxes of step times say as much as a curve.
_FEWEST_LOOKS = 3
_NOT_FINITE = "non-finite"
#: by rank
_Looks = dict[int, tuple[RankLook, ...]]
#: (name, curves of a run's ranks, a value in words, whether on a logarithmic scale)
_Figure = tuple[str, Callable[[RunEvidence, _Looks], Iterator[Curve]], Callable[[float], str], bool]


@dataclass(frozen=True)
class FindingRow:
    """`place` is in WIDTH, None where its step is not known; `words` say whose it is, and where."""

    id: str
    severity: str
    title: str
    place: float | None
    words: str


@dataclass(frozen=True)
class Course(Block):
    """`rules` are places in WIDTH; `ticks` are (per cent, label)."""

    findings: tuple[FindingRow, ...]
    more_findings: int
    charts: tuple[CurveChart, ...]
    rules: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]

    @property
    def has_step_times(self) -> bool:
        return any(curve_chart.name == "Step time" for curve_chart in self.charts)


def course(report: Report, evidence: RunEvidence) -> Course | None:
    """None where no rank's steps are known."""
    looks = _looks(evidence)
    last = _last_step(evidence, looks)
    if last < 2:
        return None
    steps = [(finding, *_step_of(finding, evidence, looks)) for finding in report.findings]
    drawn = [
        curve_chart(name, list(points_of(evidence, looks)), last, said, log=log)
        for name, points_of, said, log in _figures()
    ]
    charts = tuple(one for one in drawn if one is not None)
    if not charts and all(step is None for _, step, _ in steps):
        return None
    rows = [_finding_row(*one, last) for one in steps]
    rules = dict.fromkeys(row.place for row in rows if row.severity == "error" and row.place is not None)
    return Course(
        tuple(rows[:_MOST_FINDINGS]), max(0, len(rows) - _MOST_FINDINGS), charts, tuple(rules)[:_MOST_RULES],
        tuple(_ticks(last)),
    )  # fmt: skip


def side_by_side(runs: Mapping[str, RunEvidence]) -> Course | None:
    """The same for several runs, one row each, without findings; None if nothing is known."""
    looks = {name: _looks(evidence) for name, evidence in runs.items()}
    last = max((_last_step(evidence, looks[name]) for name, evidence in runs.items()), default=0)
    charts = []
    for figure, points_of, said, log in _figures():
        curves = [_together(name, list(points_of(evidence, looks[name])), said) for name, evidence in runs.items()]
        charts.append(curve_chart(figure, [curve for curve in curves if curve is not None], last, said, log=log))
    found = tuple(one for one in charts if one is not None)
    return Course((), 0, found, (), tuple(_ticks(last))) if found and last >= 2 else None


def _together(who: str, curves: Sequence[Curve], said: Callable[[float], str]) -> Curve | None:
    """All ranks of a run as one."""
    points = sorted(point for curve in curves for point in curve.points)
    marks = tuple(sorted({step for curve in curves for step in curve.marks}))
    if not points and not marks:
        return None
    if len(curves) == 1:
        return replace(curves[0], who=who)
    most = [f"at most {said(max(value for _, value in points))}"] if points else []
    return Curve(who, points, ", ".join([f"{len(curves)} ranks", *most, *_not_finite(marks)]), marks)


def _looks(evidence: RunEvidence) -> _Looks:
    return {rank: looks for node in evidence.nodes for rank, looks in node.courses.items()}


def _last_step(evidence: RunEvidence, looks: _Looks) -> int:
    known = [rank.step or 0 for rank in evidence.ranks] + [own[-1].step for own in looks.values() if own]
    for rank in evidence.ranks:
        known += [series.samples[-1].step for series in rank.gradients if series.samples]
        known += [rank.memory.course[-1].step] if rank.memory and rank.memory.course else []
        known += [step for points in _loss_series(rank) for step, _ in points[-1:]]
    return max(known, default=0)


def _ticks(last: int) -> Iterator[tuple[float, str]]:
    """About five round steps."""
    wide = next(n * 10**e for e in range(20) for n in (1, 2, 5) if last / (n * 10**e) <= 6)
    for step in range(0, last + 1, wide):
        yield 100 * step / last, f"step {step:,}" if step == 0 else f"{step:,}"


# -- findings -----------------------------------------------------------------------------------------------------


def _step_of(finding: Finding, evidence: RunEvidence, looks: _Looks) -> tuple[int | None, bool]:
    """(its step, whether it is estimated from the time): by the last sample of its ranks before it."""
    if finding.step is not None:
        return finding.step, False
    t = finding.first_seen
    if t is None:
        return None, False
    wanted = set(finding.ranks)
    before = [look.step for rank in wanted or looks for look in looks.get(rank, ()) if look.t <= t]
    before += [r.step for r in evidence.ranks if r.rank in wanted and r.step is not None and r.ended and r.ended <= t]
    return (max(before), True) if before else (None, False)


def _finding_row(finding: Finding, step: int | None, about: bool, last: int) -> FindingRow:
    ranks = fold_ranks(finding.ranks)
    who = f"rank{'s' if len(finding.ranks) > 1 else ''} {ranks}" if len(ranks) <= 16 else f"{len(finding.ranks)} ranks"
    where = "no step is known" if step is None else f"{'about ' if about else ''}step {step:,}"
    words = f"{who}, {where}" if finding.ranks else where
    return FindingRow(finding.id, finding.severity, finding.summary, None if step is None else place(step, last), words)


# -- figures ------------------------------------------------------------------------------------------------------


def _figures() -> tuple[_Figure, ...]:
    return (
        ("Step time", _step_times, milliseconds, False),
        ("GPU memory", _gpu_memory, gib, False),
        ("Host memory", _host_memory, gib, False),
        ("Loss", _losses, _figure, False),
        ("Gradient norm", _norms, _figure, True),
    )


def _step_times(evidence: RunEvidence, looks: _Looks) -> Iterator[Curve]:
    for rank in evidence.ranks:
        points = [(look.step, look.step_ms) for look in looks.get(rank.rank, ()) if look.step_ms is not None]
        if len(points) >= _FEWEST_LOOKS:
            times = rank.step_times
            words = times_words(times) if times else milliseconds(median(value for _, value in points))
            yield Curve(_who(rank), points, words)


def _gpu_memory(evidence: RunEvidence, looks: _Looks) -> Iterator[Curve]:
    """torch's count if `--memory` recorded it, else the memory in use on the device."""
    for rank in evidence.ranks:
        course = rank.memory.course if rank.memory else ()
        points = [(point.step, point.allocated) for point in course if point.allocated]
        points = points or [(look.step, look.gpu_used) for look in looks.get(rank.rank, ()) if look.gpu_used]
        if points:
            yield Curve(_who(rank), points, _from_to(points))


def _host_memory(evidence: RunEvidence, looks: _Looks) -> Iterator[Curve]:
    for rank in evidence.ranks:
        course = rank.memory.course if rank.memory else ()
        points = [(point.step, point.anon) for point in course]
        points = points or [(look.step, look.rss) for look in looks.get(rank.rank, ()) if look.rss]
        if len(points) >= _FEWEST_LOOKS:
            yield Curve(_who(rank), points, _from_to(points))


def _from_to(points: Sequence[tuple[int, int]]) -> str:
    first, last, most = points[0][1], points[-1][1], max(size for _, size in points)
    peak = f", at most {gib(most)}" if most > 1.1 * max(first, last) else ""
    levels = dict.fromkeys((gib(first), gib(last)))
    return f"{' to '.join(levels)}{peak}"


def _norms(evidence: RunEvidence, _looks: _Looks) -> Iterator[Curve]:
    """Norms over all layers together, if `--watch gradients` recorded them; with marks where a value was not finite."""
    for rank in evidence.ranks:
        bad = tuple(fact.step for fact in rank.guards if fact.guard == _NOT_FINITE and fact.step is not None)
        for series in rank.gradients or (None,):
            samples = series.samples if series else ()
            points = [(sample.step, sample.total) for sample in samples if sample.total is not None]
            marks = (*bad, *(sample.step for sample in samples if sample.total is None))
            if points or marks:
                name = f" · {series.optimizer}" if series and len(rank.gradients) > 1 else ""
                yield Curve(f"{_who(rank)}{name}", points, _with_marks(points, marks), marks)


def _losses(evidence: RunEvidence, _looks: _Looks) -> Iterator[Curve]:
    for rank in evidence.ranks:
        for series in _loss_series(rank):
            points = [(step, value) for step, value in series if value is not None]
            marks = tuple(step for step, value in series if value is None)
            yield Curve(_who(rank), points, _with_marks(points, marks), marks)


def _loss_series(rank: RankRecord) -> Iterator[list[tuple[int, float | None]]]:
    for fact in rank.guards:
        yield from (series for series in losses(fact.fields).values() if series)


def _with_marks(points: Sequence[tuple[int, float]], marks: Sequence[int]) -> str:
    words = [" to ".join(dict.fromkeys(_figure(point[1]) for point in (points[0], points[-1])))] if points else []
    return ", ".join([*words, *_not_finite(marks)])


def _not_finite(marks: Sequence[int]) -> list[str]:
    return [f"not finite at step {min(marks):,}"] if marks else []


def _who(rank: RankRecord) -> str:
    return f"rank {rank.rank}"


def _figure(value: float) -> str:
    return f"{value:.3g}"
