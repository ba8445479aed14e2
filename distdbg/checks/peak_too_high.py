"""A peak that one line makes, or that one rank has and the others have not."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from distdbg.checks._snapshots import holders_words, kinds_words, stack_citation
from distdbg.evidence.memory_answer import ACTIVATIONS, WORKSPACE, Holder, MemoryAnswer, gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="peak-too-high",
        severity="info",
        title="one line, or one rank, makes the peak of GPU memory",
        meaning="Between its peaks the run needs much less: one line's short-lived tensors decide how large a GPU must "
        "be; or one rank needs more than the others, and all wait for it to fit.",
        how_seen="The trace of a memory snapshot as it would be without one stack; the peaks of ranks side by side.",
        remedy="Do in parts what the line does at once (chunked loss, checkpointing), or spread the rank's extra work.",
        source="https://pytorch.org/blog/understanding-gpu-memory-1/",
    ),
)
_SAVES = 0.2
_PASSING = 0.6
_ABOVE = 1.2
_WORTH = 64 << 20


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for answer in evidence.snapshots:
        if answer.oom is None and (holder := _decides(answer)) is not None:  # else cuda-oom tells of it
            yield _line(answer, holder)
    yield from _outliers([a for a in evidence.snapshots if a.rank is not None])


def _decides(answer: MemoryAnswer) -> Holder | None:
    """The passing holder without which the peak would be lowest, where that is much lower."""
    peak = answer.peak.active
    found = [
        h
        for h in answer.peak.holders
        if h.without
        and peak - h.without >= max(_WORTH, _SAVES * peak)
        and sum(h.kinds.get(kind, 0) for kind in (ACTIVATIONS, WORKSPACE)) >= _PASSING * h.bytes
        and not any(leak.stack == h.stack for leak in answer.leaks)
    ]
    return min(found, key=lambda h: h.without, default=None)


def _line(answer: MemoryAnswer, holder: Holder) -> Finding:
    stack, peak = answer.stacks[holder.stack], answer.peak.active
    share = 100 * (peak - holder.without) // peak
    return Finding(
        "peak-too-high",
        "info",
        "certain",
        f"{stack.label} makes {share} % of the peak of {answer.who}: without it {gib(holder.without)}, with it "
        f"{gib(peak)}",
        cause=f"At the peak {holder.count} of its tensors held {gib(holder.bytes)} ({', '.join(holder.kinds)}).",
        remedy="Do it in parts (chunks of the batch or of the vocabulary, in-place operations), or checkpoint it: up "
        f"to {gib(peak - holder.without)} is to be had.",
        ranks=(answer.rank,) if answer.rank is not None else (),
        evidence=(stack_citation(answer, stack, f"event {answer.peak.event}, the peak"),),
    )


def _outliers(answers: list[MemoryAnswer]) -> Iterator[Finding]:
    if len(answers) < 3:
        return
    usual = median(a.peak.active for a in answers)
    for answer in answers:
        above = answer.peak.active - usual
        if answer.peak.active > _ABOVE * usual and above >= _WORTH:
            yield Finding(
                "peak-too-high",
                "warning",
                "certain",
                f"{answer.who} peaks at {gib(answer.peak.active)}, the other ranks at about {gib(usual)}",
                cause=f"It holds {kinds_words(answer.peak)}; most by {holders_words(answer, answer.peak)}.",
                remedy=f"`distdbg memory diff` of {answer.path} and another rank's file says where the difference is.",
                ranks=(answer.rank,) if answer.rank is not None else (),
                evidence=(Citation(answer.path, None, f"event {answer.peak.event}, the peak"),),
            )
