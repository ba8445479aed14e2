"""Detect a peak that one line causes, or that one rank has and the others have not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from statistics import median

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._snapshots import alike, holders_words, kinds_words, stack_citation
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import ACTIVATIONS, PARAMETERS, WORKSPACE, Holder, MemoryAnswer, gib
from distdbg.evidence.memory.growth import device_peak
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding

#: what a snapshot of ours was taken for, by its name
_TAKEN = re.compile(r"([a-z]+)-step\d+-\d+\.")


@rule("peak-too-high", needs=("rank.memory", "snapshots"))
def peak_too_high(evidence: RunEvidence) -> Iterator[Finding]:
    without_error = [answer for answer in evidence.snapshots if answer.oom is None]  # else cuda-oom reports it
    for answer, who, ranks in alike(without_error, _figures):
        if (holder := _decides(answer)) is not None:
            yield _line(answer, holder, who, ranks)
    outliers = _outliers([a for a in evidence.snapshots if a.rank is not None])
    yield from outliers.values()
    yield from _over_the_run(evidence, set(outliers))


def _decides(answer: MemoryAnswer) -> Holder | None:
    """The passing holder without which the peak would be lowest, where that is much lower."""
    peak = answer.peak.active
    found = [
        h
        for h in answer.peak.holders
        if h.without
        and peak - h.without >= max(thresholds.WORTH_SAVING, thresholds.SAVED * peak)
        and sum(h.kinds.get(kind, 0) for kind in (ACTIVATIONS, WORKSPACE)) >= thresholds.SHORT_LIVED * h.bytes
        and not any(leak.stack == h.stack for leak in answer.leaks)
    ]
    return min(found, key=lambda h: h.without, default=None)


def _figures(answer: MemoryAnswer) -> object:
    holder = _decides(answer)
    if holder is None:
        return None
    return answer.stacks[holder.stack].label, gib(holder.without), gib(answer.peak.active), gib(holder.bytes)


def _line(answer: MemoryAnswer, holder: Holder, who: str, ranks: Sequence[int]) -> Finding:
    stack, peak = answer.stacks[holder.stack], answer.peak.active
    share = 100 * (peak - holder.without) // peak
    return build_finding(
        "peak-too-high",
        ranks,
        f"{stack.label} makes {share} % of the peak of {who}: without it {gib(holder.without)}, with it {gib(peak)}",
        f"At the peak {holder.count} of its tensors held {gib(holder.bytes)} ({', '.join(holder.kinds)}).",
        remedy="Do it in parts (chunks of the batch or of the vocabulary, in-place operations), or checkpoint it: up "
        f"to {gib(peak - holder.without)} is to be had.",
        confidence="certain",
        evidence=(stack_citation(answer, stack, f"{answer.peak.when}, the peak"),),
    )


def _outliers(answers: list[MemoryAnswer]) -> dict[int, Finding]:
    """The highest snapshot of each rank that is above the others' of the same reason: one of an out-of-memory error
    cannot be compared with one from elsewhere in a step. A rank is reported once, by its highest snapshot."""
    taken: dict[str, dict[int, MemoryAnswer]] = {}
    for answer in sorted(answers, key=lambda a: a.peak.active):
        why = _TAKEN.match(PurePath(answer.path).name)
        taken.setdefault(why[1] if why else "", {})[answer.rank or 0] = answer
    found: list[tuple[int, int, Finding]] = []
    for highest in taken.values():
        peaks = {rank: answer.peak.active for rank, answer in highest.items()}
        own = {rank: answer.peak.kinds.get(PARAMETERS, 0) for rank, answer in highest.items()}
        usual, above = _above(peaks)
        for rank in above:
            # another part of the model: a pipeline's stage, an expert
            middle = median(own.values())
            by_nature = middle > 0 and abs(own[rank] - middle) > thresholds.SAME_MODEL * middle
            found.append((peaks[rank], rank, _outlier(highest[rank], usual, by_nature=by_nature)))
    return {rank: finding for _, rank, finding in sorted(found, key=lambda f: f[:2])}


def _outlier(answer: MemoryAnswer, usual: int, *, by_nature: bool) -> Finding:
    stage = " It has another part of the model than they have, and may need more by nature." if by_nature else ""
    return build_finding(
        "peak-too-high",
        answer.ranks,
        f"{answer.who} peaks at {gib(answer.peak.active)}, the other ranks at about {gib(usual)}",
        f"It holds {kinds_words(answer.peak)}; most by {holders_words(answer, answer.peak)}.{stage}",
        severity="info" if by_nature else "warning",
        confidence="certain",
        remedy=f"`distdbg memory diff` of {answer.path} and another rank's file says where the difference is.",
        evidence=(Citation(answer.path, None, f"{answer.peak.when}, the peak"),),
    )


def _over_the_run(run: RunEvidence, reported: set[int]) -> Iterator[Finding]:
    """Find outliers by torch's own maximum, among ranks whose snapshots do not show the peak."""
    series = {record.rank: record.memory for record in run.ranks if record.memory is not None}
    peaks = {rank: peak for rank, one in series.items() if (peak := device_peak(one)) is not None}
    usual, above = _above({rank: peak.bytes for rank, peak in peaks.items()})
    for rank in above:
        if rank in reported:
            continue
        peak = peaks[rank]
        yield build_finding(
            "peak-too-high",
            (rank,),
            f"rank {rank} had up to {gib(peak.bytes)} of its GPU allocated ({peak.when}), the middle rank up to "
            f"{gib(usual)}",
            f"It is the highest of torch's own maxima (Max_MA) in the lines of {peak.steps:,} steps that were "
            f"read, {peak.first} to {peak.last}. Each counts from the start, or from when the script last reset it.",
            remedy=f"`--memory-steps {peak.step}:{peak.step}` takes a snapshot of each rank at that step's end, and "
            f"`distdbg memory diff RUN --ranks {min(set(peaks) - {rank})},{rank}` says where the difference is.",
            confidence="certain",
            step=peak.step,
            evidence=(Citation(f"{series[rank].path}/memory.jsonl", None, "Max_MA, the highest", gib(peak.bytes)),),
        )


def _above(most: Mapping[int, int]) -> tuple[int, list[int]]:
    """(the median, the ranks with much more); of two ranks none is an outlier."""
    if len(most) < 3:
        return 0, []
    usual = int(median(most.values()))
    return usual, [
        rank
        for rank, size in most.items()
        if size > (1 + thresholds.SAVED) * usual and size - usual >= thresholds.WORTH_SAVING
    ]
