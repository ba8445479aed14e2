"""Read the stacks of a straggler that its agent sampled while the others waited (launch/agent/straggler_stacks.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from distdbg.evidence.run import NodeRecord
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import Citation
from distdbg.protocol.agent_events import StragglerSample

_MOST_CITED = 3


@dataclass(frozen=True)
class Sampled:
    """The line of the user's code that most samples have, the deepest of each stack. `for_ms` and `usual_ms` are
    medians: how long the rank had been in the phase by then, and the time of the phase on the other ranks in a step.
    `innermost` is the innermost function of the newest of them, user's or not."""

    frame: Frame
    source: str
    times: int
    samples: int
    for_ms: float
    usual_ms: float
    citations: tuple[Citation, ...]
    innermost: str = ""


def sampled(nodes: Iterable[NodeRecord], rank: int, phase: str) -> Sampled | None:
    """None where no stack was sampled, or no stack has a line of the user's."""
    samples = list(_samples(nodes, rank, phase))
    if not samples:
        return None
    lines = Counter((sample.frame.file, sample.frame.line) for sample in samples)
    (line, times), *_ = lines.most_common(1)
    same = [sample for sample in samples if (sample.frame.file, sample.frame.line) == line]
    return replace(
        same[0],
        times=times,
        samples=len(samples),
        for_ms=median(sample.for_ms for sample in same),
        usual_ms=median(sample.usual_ms for sample in same),
        citations=tuple(one for sample in same[:_MOST_CITED] for one in sample.citations),
        innermost=same[-1].innermost,
    )


def _samples(nodes: Iterable[NodeRecord], rank: int, phase: str) -> Iterable[Sampled]:
    """Each sample by itself."""
    for node in nodes:
        for line, event in StragglerSample.among(node.events):
            if event.rank != rank or event.phase != phase:
                continue
            frames = list(_frames(event.frames))
            users = next((frame for frame in frames if frame.users), None)
            if users is not None:
                quote = "\n".join(map(str, frames))
                citation = Citation(node.events_path, line, f"rank {rank}, while it was late", quote)
                for_ms, usual_ms = event.for_ms or 0.0, event.usual_ms or 0.0
                yield Sampled(users, event.source, 1, 1, for_ms, usual_ms, (citation,), frames[0].function)


def _frames(rows: Iterable[object]) -> Iterable[Frame]:
    for item in rows:
        if isinstance(item, list) and len(item) == 3 and isinstance(item[1], int):
            yield Frame(str(item[2]), str(item[0]), item[1])
