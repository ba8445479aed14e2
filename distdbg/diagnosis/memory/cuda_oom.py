"""The GPU's memory ran out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from distdbg.diagnosis.failures.findings import failure_findings
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._kept import kept_on_device
from distdbg.diagnosis.memory._snapshots import LOWERS, holders_words, kinds_words, stack_citation
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import MemoryAnswer, Moment, OomVerdict, gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Citation, Confidence, Finding


@rule("cuda-oom", of_failures=True, needs=("failure.cuda-oom", "snapshots"))
def cuda_oom(evidence: RunEvidence) -> Iterable[Finding]:
    """A rank's failure is told with its own snapshot; a request that failed and did not end its rank is no error.

    A file alone does not say how its job ended: steps that ended after the failed request do.
    """
    own = {f.rank.rank: f for f in failures(evidence) if f.finding == "cuda-oom"}
    fatal = [a for a in evidence.snapshots if a.rank in own and shows(a, own[a.rank])]
    told = [one for answer in fatal for one in from_snapshot(answer)]
    grown = {rank.rank: one.growth.total for rank, one in kept_on_device(evidence)} if own else {}
    for finding in failure_findings(evidence, "cuda-oom"):
        mine = next((one for one in told if set(one.ranks) & set(finding.ranks)), None)
        if mine is not None:
            yield _together(finding, mine)
        elif finding.ranks and all(0 < (request_of(own[rank]) or 0) <= grown.get(rank, 0) for rank in finding.ranks):
            yield replace(finding, explained_by="memory-leak")
        else:
            yield finding
    for answer in evidence.snapshots:
        for one in from_snapshot(answer) if answer not in fatal else ():
            steps = answer.oom.steps_after if answer.oom else 0
            ended = not evidence.ranks and steps < thresholds.CAUGHT_AFTER
            yield one if ended else _survived(one, steps)


def _together(failure: Finding, seen: Finding) -> Finding:
    return replace(
        failure,
        confidence=seen.confidence,
        summary=seen.summary,
        cause=f"{seen.cause} {failure.summary[:1].upper()}{failure.summary[1:]}.",
        remedy=seen.remedy,
        evidence=(*failure.evidence, *seen.evidence),
        explained_by=seen.explained_by,
    )


def _survived(seen: Finding, steps: int) -> Finding:
    """A script that looks for a batch that fits has caught it. `steps` are those that ended after it."""
    on = f"it went on for {steps:,} steps" if steps >= thresholds.CAUGHT_AFTER else "it went on"
    return replace(
        seen,
        severity="info",
        cause_class=CauseClass.OBSERVATION,
        summary=f"{seen.summary}; {on}",
        explained_by=None,
    )


# -- the error as a memory snapshot shows it: really short or in pieces; what would have helped, and how --------------

#: As the worker side names its files, and as torch words its error.
_STEP = re.compile(r"/\w+-step(\d{1,12})-\d+\.")
_REQUEST = re.compile(r"Tried to allocate (\d{1,15}(?:\.\d{1,2})?) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_WORDS = {
    "short": "the memory was really short, by {least}{by}",
    "fragmented": "it was fragmented: {by} more than that was free, in pieces",
    "limited": "{there}, so that something else refused it",
}


def from_snapshot(answer: MemoryAnswer) -> Iterator[Finding]:
    if answer.oom is not None and answer.at_oom is not None:
        yield _finding(answer, answer.oom, answer.at_oom)


def request_of(failure: RankFailure) -> float | None:
    """Bytes, as torch's error says it."""
    said = _REQUEST.search(failure.message)
    return float(said[1]) * _UNITS[said[2]] if said else None


def shows(answer: MemoryAnswer, failure: RankFailure) -> bool:
    """Whether the failed request in it may be the one that ended the rank: not at another step, nor of another size."""
    step, said = _STEP.search(answer.path), _REQUEST.search(failure.message)
    if answer.oom is None or answer.rank != failure.rank.rank:
        return False
    if step is not None and failure.rank.step is not None and int(step[1]) != failure.rank.step:
        return False
    return said is None or any(_same_size(said, size) for size in (answer.oom.request, answer.oom.needed))


def _same_size(said: re.Match[str], size: int) -> bool:
    """torch tells two digits behind the point, of bytes none."""
    return abs(float(said[1]) - size / _UNITS[said[2]]) < 0.01


def _finding(answer: MemoryAnswer, oom: OomVerdict, then: Moment) -> Finding:
    stack = answer.stacks[oom.stack]
    words = _WORDS[oom.verdict].format(by=gib(oom.by), least=_least(oom), there=_there(oom))
    at = f" at {stack.label}" if stack.frames else ""
    return build_finding(
        "cuda-oom",
        () if answer.rank is None else (answer.rank,),
        f"{answer.who} asked for {gib(oom.request)}{at} and did not get it: {words}",
        " ".join(_cause(answer, oom, then)),
        confidence=_confidence(answer, oom),
        remedy=_remedy(answer, oom, then),
        explained_by="memory-leak" if _leaked(answer, oom) else None,
        evidence=(
            stack_citation(answer, stack, f"event {oom.event}, the failed request"),
            Citation(answer.path, None, f"segments as they were at event {oom.event}", _figures(oom)),
        ),
        cause_class=CauseClass.KILLED_OR_OOM,
    )


def _leaked(answer: MemoryAnswer, oom: OomVerdict) -> bool:
    """Whether the request would have been served without what grew from step to step."""
    return 0 < oom.missing <= sum(leak.grown for leak in answer.leaks)


def _least(oom: OomVerdict) -> str:
    """Holes of several segments do not add up: only the whole segment is certain to be enough."""
    return "at least " if oom.by < oom.enough else ""


def _there(oom: OomVerdict) -> str:
    """What was large enough for the request, and where."""
    found = [f"the device had {gib(oom.device_free)} free"] if oom.device_free >= oom.needed else []
    if oom.largest_hole >= oom.request:
        found.append(f"torch's own segments had a hole of {gib(oom.largest_hole)}")
    return " and ".join(found)


def _confidence(answer: MemoryAnswer, oom: OomVerdict) -> Confidence:
    """The error is certain; where pieces would only just have been enough, their sum says less. The device told what
    it had free; holes are what we found."""
    if oom.verdict == "short":
        return "certain"
    if oom.verdict == "limited" and oom.device_free < oom.needed:
        return "likely"
    return "likely" if answer.overflowed or oom.by < thresholds.SPARE * oom.request else "certain"


def _figures(oom: OomVerdict) -> str:
    return "\n".join(
        (
            f"request           {gib(oom.request)}",
            f"free on device    {gib(oom.device_free)}",
            f"reserved          {gib(oom.reserved)}, of it active {gib(oom.active)}",
            f"free in segments  {gib(oom.free_inside)}, usable for this request {gib(oom.free_usable)}",
            f"largest hole      {gib(oom.largest_hole)}",
        )
    )


def _cause(answer: MemoryAnswer, oom: OomVerdict, then: Moment) -> Iterator[str]:
    yield (
        f"At that event {gib(oom.device_free)} was free on the device, and {gib(oom.free_inside)} inside torch's "
        f"segments, {gib(oom.free_usable)} of it usable for this request, in holes of at most {gib(oom.largest_hole)}."
    )
    if oom.pending:
        yield f"{gib(oom.pending)} was freed, and still waited for another stream."
    yield f"{gib(then.active)} stood: {kinds_words(then)}; most of it by {holders_words(answer, then)}."
    grown = sum(leak.grown for leak in answer.leaks)
    if grown:
        enough = "without that it would have been served" if _leaked(answer, oom) else "less than was missing"
        label = answer.stacks[answer.leaks[0].stack].label
        yield f"{gib(grown)} of it grew from step to step ({label}): {enough}."
    if oom.how_many > 1:
        yield f"It is the last of {oom.how_many} such errors in the trace."


def _remedy(answer: MemoryAnswer, oom: OomVerdict, then: Moment) -> str:
    if _leaked(answer, oom):
        return f"Repair the leak at {answer.stacks[answer.leaks[0].stack].label} first: it holds more than was missing."
    if oom.verdict == "limited":
        looks = ["torch.cuda.set_per_process_memory_fraction"] if oom.device_free >= oom.needed else []
        if oom.largest_hole >= oom.request:
            looks.append("max_split_size_mb in PYTORCH_CUDA_ALLOC_CONF: a hole that is large enough may not be split")
        return f"Look for {', or '.join(looks)}."
    if oom.verdict == "fragmented":
        if not oom.expandable:
            return (
                "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: segments that grow leave no such holes; in one "
                f"piece, {gib(oom.free_usable + oom.device_free)} would have been there for {gib(oom.request)}."
            )
        return (
            "Segments are expandable already: allocate what lives long before what lives short, or call "
            "torch.cuda.empty_cache() between phases of different shapes."
        )
    return _shorter(oom, then)


def _shorter(oom: OomVerdict, then: Moment) -> str:
    """The kinds of which a part is as much as was short, and that part. What the step asks for later is not known."""
    words = []
    for kind, how in LOWERS.items():
        size = then.kinds.get(kind, 0)
        if size >= oom.by:
            words.append(f"{kind} ({gib(size)}) by at least {max(1, -(-100 * oom.by // size))} %: {how}")
    if not words:
        return "No one kind of memory is large enough to make up for it: shard with FSDP2, or use more or larger GPUs."
    to = f"{gib(oom.by)} to " if oom.by < oom.enough else ""
    lacked = f"This request lacked {to}{gib(oom.enough)}; the rest of the step may need more."
    return f"Lower {'; or '.join(words)}. {lacked}"
