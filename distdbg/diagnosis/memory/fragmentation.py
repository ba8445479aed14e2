"""Detect memory that torch holds in pieces: reserved grows while use does not, or exceeds it by far at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import full_at, on_device, trend_citation
from distdbg.diagnosis.memory._snapshots import alike, kinds_words
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import MemoryAnswer, gib, warm_up
from distdbg.evidence.memory.growth import Point, growth
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding

_MOST_NAMED, _WORTH_NAMING = 3, 0.1


@rule("fragmentation", needs=("rank.memory", "snapshots"))
def fragmentation(evidence: RunEvidence) -> Iterator[Finding]:
    yield from _find_reserved_growth(evidence)
    full_of_holes: list[MemoryAnswer] = []
    for answer in evidence.snapshots:
        if answer.oom is not None and answer.oom.verdict == "fragmented":
            continue  # cuda-oom says it, with the holes
        points = next((r.memory.points for r in evidence.ranks if r.rank == answer.rank and r.memory is not None), ())
        if trend := _trend(answer):
            yield _finding(answer, points, *trend)
            continue
        held, used = answer.peak.reserved, answer.peak.active
        holes = answer.events > 0 and held - used >= max(thresholds.HOLES_BYTES, thresholds.HOLES_SHARE * held)
        # It may come from a higher peak of this rank, which the trace does not have and its memory lines do.
        higher = max((p.peak or 0 for p in points), default=0) - used >= (held - used) / 2
        if holes and not higher:
            full_of_holes.append(answer)
    for answer, who, ranks in alike(full_of_holes, _figures):
        yield _at_peak(answer, who, ranks)


def _find_reserved_growth(run: RunEvidence) -> Iterator[Finding]:
    """`fragmentation`: reserved grows, and the highest that a step uses does not."""
    for rank in run.ranks:
        points = on_device(rank)
        trend = growth([(p.step, p.reserved or 0, p.epochs) for p in points], *thresholds.DEVICE)
        if trend is None:
            continue
        # By the peak within a backward too, which may rise with the sequence's length while all phases end as before.
        used = [p.peak or p.allocated or 0 for p in points if p.step >= trend.first]
        third = max(1, len(used) // 3)
        if max(used[-third:]) - max(used[:third]) > thresholds.FLAT * trend.total:
            continue
        yield build_finding("fragmentation", (rank.rank,),
            f"rank {rank.rank} reserves {gib(trend.slope)} more of its GPU with every step, for the same use"
            + full_at(points, trend.slope),
            f"torch held {gib(trend.levels[0])} at step {trend.first}, {gib(trend.levels[-1])} at step {trend.last}; "
            "the highest use of a step stayed the same: new requests do not fit into the holes.",
            remedy="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad inputs to a few sizes.",
            step=trend.last, evidence=trend_citation(rank, trend, "CA"),
        )  # fmt: skip


def _trend(answer: MemoryAnswer) -> tuple[int, int] | None:
    """(reserved after the warm-up, at the end) where it rose while the steps' peaks did not."""
    reserved, active = answer.reserved_by_step, answer.active_by_step
    if len(reserved) < thresholds.RESERVED_STEPS:
        return None
    warm = warm_up(len(reserved))
    reserved, active = reserved[warm:], active[warm:]
    third = max(1, len(reserved) // 3)
    grown = reserved[-1] - reserved[0]
    thirds = (reserved[0], reserved[third], reserved[-third], reserved[-1])
    steady = all(b > a for a, b in pairwise(thirds))
    flat = max(active[-third:]) - max(active[:third]) <= thresholds.FLAT * grown
    return (reserved[0], reserved[-1]) if steady and flat and grown >= thresholds.RESERVED_RISE * reserved[0] else None


def _finding(answer: MemoryAnswer, points: Sequence[Point], first: int, last: int) -> Finding:
    boundaries = len(answer.reserved_by_step)
    slope = (last - first) * boundaries / ((boundaries - 1 - warm_up(boundaries)) * max(answer.steps, 1))
    shown = sorted({n * (boundaries - 1) // 5 for n in range(6)})
    levels = ((n + 1, gib(answer.reserved_by_step[n]), gib(answer.active_by_step[n])) for n in shown)
    quote = "\n".join(f"step {step:>5}: reserved {reserved}, highest active {used}" for step, reserved, used in levels)
    return build_finding(
        "fragmentation",
        answer.ranks,
        f"{answer.who} reserves {gib(slope)} more with every step, {gib(first)} to {gib(last)}, for the same use"
        + ("" if _comes_back(answer, last - first) else full_at(points, slope)),
        f"Over {answer.steps} steps the highest active memory of a step stayed at about "
        f"{gib(answer.active_by_step[-1])}, while what torch holds of the device rose by {gib(last - first)}: new "
        f"requests do not fit into the holes that older ones left.{_whose(answer, last - first)}",
        remedy=_remedy(answer),
        explained_by="memory-leak" if answer.leaks else None,  # what grows needs new segments, and leaves holes
        evidence=(Citation(answer.path, None, f"segments, device {answer.device}", quote),),
    )


def _comes_back(answer: MemoryAnswer, grown: int) -> bool:
    """Whether most of the additionally reserved memory is empty: the device does not run out of memory by it."""
    return answer.standing_empty >= grown / 2


def _whose(answer: MemoryAnswer, grown: int) -> str:
    """The stacks whose requests were reserved since the warm-up, and the stacks in segments that are mostly holes."""
    said = ""
    for found, words in ((answer.asked_for, "New segments were asked for by"), (answer.kept_open, "Holes are kept by")):
        largest = [s for s in found[:_MOST_NAMED] if s.bytes >= grown * _WORTH_NAMING]
        named = ", ".join(f"{answer.stacks[s.stack].label} ({gib(s.bytes)} in {s.count})" for s in largest)
        said += f" {words} {named}." if named else ""
    if _comes_back(answer, grown):
        said += (
            f" {gib(answer.standing_empty)} of segments are empty at the end: torch gives those back before a "
            "request fails, which takes time and is no lack of memory."
        )
    return said


def _figures(answer: MemoryAnswer) -> object:
    return gib(answer.peak.active), gib(answer.peak.reserved), kinds_words(answer.peak), bool(answer.start)


def _at_peak(answer: MemoryAnswer, who: str, ranks: Sequence[int]) -> Finding:
    peak = answer.peak
    return build_finding(
        "fragmentation",
        ranks,
        f"at the peak {who} used {gib(peak.active)} of the {gib(peak.reserved)} that torch had reserved",
        f"{gib(peak.reserved - peak.active)} lay in holes while most was used ({kinds_words(peak)}). It may also "
        "be left from a higher peak before recording began.",
        confidence="possible",
        severity="info" if answer.start else None,  # a trace that begins in the middle may have missed the highest peak
        remedy=_remedy(answer),
        evidence=(Citation(answer.path, None, f"{peak.when}, device {answer.device}"),),
    )


def _remedy(answer: MemoryAnswer) -> str:
    if (answer.settings or {}).get("expandable_segments", "").lower() == "true":
        return "Segments are expandable already: pad inputs to a few sizes, and make what lives long first."
    return "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad inputs to a few sizes."
