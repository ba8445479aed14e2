"""Reduce one rank's trace to a profile that is small enough to keep for a thousand ranks.

Times are us of a typical step: the mean of the middle half of the steps by duration; of a place, the median of all,
and of two steps the cheaper: what happens in the first alone is in no other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median, median_low
from typing import Any

from distdbg.evidence.jsonl import dicts, integer, text
from distdbg.evidence.trace.calls import Calls, Site, TraceFacts, find_calls, fused
from distdbg.evidence.trace.device import Device, Gaps, Watched, copies_from, copies_to_pageable
from distdbg.evidence.trace.events import ProfileTrace
from distdbg.evidence.trace.marks import HEADER
from distdbg.evidence.trace.phases import OWN_MARKS, Step, Steps, find_phases, find_steps, whole
from distdbg.evidence.trace.places import TracePlace
from distdbg.evidence.trace.spans import Spans, length, union, within
from distdbg.plain_text import whole_number

#: (place, kind of site) -> the lines where its function makes that call, as far as its source is available.
LinesOf = Callable[[TracePlace, str], tuple[int, ...]]
_MOST_OPERATORS = 15
_MOST_COSTLY = 24
#: Values that are read one by one, so many in a step, and mostly no further apart than this, are read in a loop.
_LOOP_CALLS = 16
_LOOP_US = 10.0
#: Operators of one line, so many in a step, and mostly not longer than this, are a loop that could be one operator.
_SMALL_CALLS = 256
_SMALL_US = 25.0
#: Between two of them Python goes round the loop.
_SMALL_GAP_US = 250.0
#: Of what happens in a step it is asked that it happens in most of them.
_IN_STEPS = 0.5
#: A loader that starts its workers so often in the steps of a profile does so at each pass.
_RESTARTS = 2


@dataclass(frozen=True)
class CostlyPlace:
    """One place that costs: `calls` a step, `us` of the host, and `gain_us`, what a step could at most be shorter."""

    kind: str
    place: TracePlace | None
    lines: tuple[int, ...]
    what: str
    calls: float
    us: float
    gain_us: float
    #: of attention on the math path: which kernel would do; "" for none, None for not known
    fused: str | None = None
    #: of buffers: the numbers that DDP sends in a forward; of a loader: how often it started its workers; of a wait:
    #: the bytes that a step copies to ordinary memory of the host
    count: int = 0

    @property
    def where(self) -> str:
        """`train.py:33 in main`; only the function where its source was not at hand; nothing where there are no
        stacks."""
        if self.place is None:
            return "a line that is not known (the profile has no stacks)"
        file, _, function = self.place[:3]
        if self.lines:
            return at(file, function, self.lines[:4])
        return f"{function} ({file.rpartition('/')[2]}, which has it near line {self.place[1]})"


def at(file: str, function: str, lines: Iterable[int]) -> str:
    """`train.py:33 in main`, `train.py:33 or 40`."""
    named = "" if function == "<module>" else f" in {function}"
    return f"{file.rpartition('/')[2]}:{' or '.join(map(str, lines))}{named}"


@dataclass(frozen=True)
class ProfileRow:
    """An operator's self time, or a kernel's: us and calls a step."""

    name: str
    us: float
    calls: float


@dataclass(frozen=True)
class OwnLine:
    """A line of the user's, 0 for what the function does beside its lines; `us` a step, without what is below it."""

    file: str
    line: int
    function: str
    us: float


@dataclass(frozen=True)
class RankProfile:
    """`rank` is None where neither the trace nor its name gives it. `unknown` are (what, because)."""

    path: str
    rank: int | None
    host: str = ""
    #: how many steps it has, the labels of the first and the last, and what cut them; 0 where nothing did
    steps: int = 0
    first: str = ""
    last: str = ""
    by: str = ""
    #: of the first step, where steps are numbered as the job's
    first_step: int | None = None
    step_us: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    hidden_us: float = 0.0
    #: the wait for data again, as the median of all steps, of two the lower: one step's long wait is none
    data_us: float = 0.0
    #: the loader's kind, as torch names its iterator; "" where no trace of one is there
    loader: str = ""
    #: whether that kind has worker processes; None where the name does not tell
    loader_has_workers: bool | None = None
    #: the median of what its thread waits for a processor in a step, which others have
    queued_us: float = 0.0
    #: us of each step, by its label, without communication that nothing hid; and the user's costliest lines in it
    own: Mapping[str, float] = field(default_factory=dict)
    own_lines: tuple[OwnLine, ...] = ()
    operators: tuple[ProfileRow, ...] = ()
    kernels: tuple[ProfileRow, ...] = ()
    device: Device | None = None
    #: the GPU's compute capability before the point; 0 where the trace does not tell
    compute_major: int = 0
    costly: tuple[CostlyPlace, ...] = ()
    stacks: bool = False
    #: epoch seconds by its host's clock, from the first step to the last; None where the trace does not tell
    span: tuple[float, float] | None = None
    watched: Watched | None = None
    unknown: tuple[tuple[str, str], ...] = ()

    @property
    def who(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.path.rpartition("/")[2]

    @property
    def counted(self) -> str:
        """`5 steps, 20 to 24`, `1 step, 20`."""
        return f"1 step, {self.first}" if self.steps == 1 else f"{self.steps} steps, {self.first} to {self.last}"

    def share(self, us: float) -> float:
        return us / self.step_us if self.step_us else 0.0


def digest(
    trace: ProfileTrace, header: Mapping[str, Any], path: str, rank: int | None, lines_of: LinesOf
) -> RankProfile:
    """Reduce one trace, which is sorted in place. `rank`: where the file's name gives it."""
    trace.arranged()
    own, distributed = _object(header, HEADER), _object(header, "distributedInfo")
    ranks = (integer(own, "rank"), rank, integer(distributed, "rank"))
    rank = next((r for r in ranks if r is not None), None)
    host = text(own, "host") or text(header, "host_name")
    unknown: list[tuple[str, str]] = []
    if cut := text(own, "missing"):
        unknown.append((f"the steps that {path} was to have", cut))
    steps = find_steps(trace)
    if steps is None:
        unknown.append((f"the steps of {path}", "neither ProfilerStep nor an optimizer's steps are in it"))
        steps = whole(trace)
    if steps is None:
        unknown.append((f"where time goes in {path}", "it has no operator of the host"))
        return RankProfile(path, rank, host, unknown=tuple(unknown))
    stacks = any(e.category == "python_function" for e in trace.threads[steps.thread])
    if not stacks:
        unknown.append((f"files and lines of {path}", "it was recorded without stacks (with_stack=True)"))
    majors = [integer(device, "computeMajor") or 0 for device in dicts(header.get("deviceProperties"))]
    known = RankProfile(path, rank, host, stacks=stacks, unknown=tuple(unknown), compute_major=min(majors, default=0),
                        span=_span(header, steps))  # fmt: skip
    return _ProfileDigest(trace, steps).profile(known, lines_of)


def _span(header: Mapping[str, Any], steps: Steps) -> tuple[float, float] | None:
    base = integer(header, "baseTimeNanoseconds")
    return (base / 1e9 + steps.steps[0].begin / 1e6, base / 1e9 + steps.steps[-1].end / 1e6) if base else None


def _object(header: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = header.get(key)
    return value if isinstance(value, dict) else {}


class _ProfileDigest:
    def __init__(self, trace: ProfileTrace, steps: Steps) -> None:
        self.trace, self.steps = trace, steps
        self.phases = find_phases(trace, steps)
        numbers = {id(step): n for n, step in enumerate(steps.steps)}
        self.typical: dict[int, Step] = {numbers[id(step)]: step for step in steps.typical}
        self.device = max(trace.devices, key=lambda d: len(trace.devices[d]), default=None)
        events = trace.devices[self.device] if self.device is not None else []
        self.gaps = Gaps(events, self.phases.data) if events else None
        copies = copies_from("Pageable", events), copies_from("Pinned", events)
        looked = TraceFacts(
            steps.steps, self.phases.data, *copies, to_host=copies_to_pageable(events), device=self.gaps is not None
        )
        main = sorted([*trace.threads[steps.thread], *trace.lines], key=lambda e: (e.begin, -e.end))
        others = [events for thread, events in trace.threads.items() if thread != steps.thread]
        self.calls: Calls = find_calls([main, *others], looked)
        self.begins = [e.begin for e in trace.threads[steps.thread] if e.category == "cpu_op"]
        self.began = {e.correlation: e.end - e.begin for e in events if e.category == "kernel"}

    def profile(self, known: RankProfile, lines_of: LinesOf) -> RankProfile:
        steps, count = self.steps.steps, len(self.typical)
        parted = [self.phases.parted(step) for step in self.typical.values()]
        hidden = sum(length(within(self.phases.hidden, s.begin, s.end)) for s in self.typical.values())
        counted = self.steps.by != "nothing"
        sites = [s for s in self.calls.sites.values() if (len(s.counts) >= _RESTARTS if s.kind == "workers"
                                                          else len(s.spans) >= _IN_STEPS * len(steps))]  # fmt: skip
        return replace(
            known,
            steps=len(steps) if counted else 0, first=steps[0].label, last=steps[-1].label, by=self.steps.by,
            first_step=whole_number(steps[0].label) if self.steps.by == OWN_MARKS else None,
            step_us=sum(step.lasts for step in self.typical.values()) / count,
            parts={name: sum(one[name] for one in parted) / count for name in parted[0]},
            hidden_us=hidden / count,
            data_us=median_low(self.phases.parted(step)["data wait"] for step in steps),
            loader=(loader := _loader(self.trace)),
            loader_has_workers=_HAS_WORKERS.get(loader),
            queued_us=median(step.queued_us for step in steps),
            own={step.label: step.lasts - self.phases.parted(step)["communication"] for step in steps},
            own_lines=self._own_lines(),
            operators=self._operators(),
            kernels=self._kernels(),
            device=self.gaps.tell(self.device or 0, self.typical, sites) if self.gaps else None,
            costly=self._costly(sites, lines_of) if counted else (),
        )  # fmt: skip

    def _operators(self) -> tuple[ProfileRow, ...]:
        rows = []
        for name, operator in self.calls.operators.items():
            us = sum(operator.us.get(n, 0.0) for n in self.typical)
            calls = sum(operator.calls.get(n, 0) for n in self.typical)
            rows.append(ProfileRow(name, us / len(self.typical), calls / len(self.typical)))
        return _largest(rows)

    def _own_lines(self) -> tuple[OwnLine, ...]:
        """The user's own lines by the median of all steps, like every place. A function that two ranks entered
        elsewhere is still the same."""
        numbers = range(len(self.steps.steps))
        us: dict[tuple[str, int, str], float] = {}
        for place, by_step in self.calls.own.items():
            key = place.file, place.at, place.function
            us[key] = us.get(key, 0.0) + median(by_step.get(n, 0.0) for n in numbers)
        costliest = sorted(us.items(), key=lambda item: -item[1])[:_MOST_COSTLY]
        return tuple(OwnLine(*key, lasts) for key, lasts in costliest)

    def _kernels(self) -> tuple[ProfileRow, ...]:
        if self.gaps is None:
            return ()
        us: dict[str, list[float]] = {}
        events = self.trace.devices[self.device or 0]
        for event in events:
            if any(step.begin <= event.begin < step.end for step in self.typical.values()):
                us.setdefault(event.name, []).append(event.end - event.begin)
        count = len(self.typical)
        return _largest(ProfileRow(name, sum(lasts) / count, len(lasts) / count) for name, lasts in us.items())

    def _costly(self, sites: Iterable[Site], lines_of: LinesOf) -> tuple[CostlyPlace, ...]:
        largest = sorted([*map(self._one, sites), *self._small()], key=_gain_order)[:_MOST_COSTLY]
        return _folded(replace(one, lines=_lines(one, lines_of)) for one in largest)

    def _one(self, site: Site) -> CostlyPlace:
        """The cost of one site by the median of all steps: a call that was preempted once is not costly."""
        numbers = range(len(self.steps.steps))
        if site.kind == "workers":
            return self._restarts(site, len(numbers))
        us = median_low(length(union(site.spans.get(n, []))) for n in numbers)
        calls = median_low(len(site.spans.get(n, [])) for n in numbers)
        gain = us
        if self.gaps is None and site.kind == "wait":
            gain = median_low(length(self._loops(site.spans.get(n, []))) for n in numbers)
        elif self.gaps is not None and site.kind in ("attention", "copy"):
            gain = median_low(sum(self.began.get(c, 0.0) for c in site.began.get(n, [])) for n in numbers)
        elif self.gaps is not None and site.kind != "load":
            gain = median_low(length(self.gaps.lost(site, n, self.steps.steps[n])) for n in numbers)
        judged = fused(site.args, device=self.gaps is not None) if site.kind == "attention" else None
        count = median_low(site.counts.get(n, 0) for n in numbers) if site.kind in ("buffers", "wait") else 0
        what = str(count) if site.kind == "buffers" else site.what
        return CostlyPlace(site.kind, site.place, (), what, calls, us, gain, judged, count)

    def _restarts(self, site: Site, steps: int) -> CostlyPlace:
        """Between the passes, so in a few steps only: the mean of all. What the first batch waits for comes on top."""
        us = sum(length(union(spans)) for spans in site.spans.values()) / steps
        times = len(site.counts)
        started = sum(site.counts.values()) / steps
        return CostlyPlace(site.kind, site.place, (), str(times), started, us, us, count=times)

    def _small(self) -> Iterable[CostlyPlace]:
        """Lines that run so many tiny operators that they are loops. On a GPU the kernels are judged instead; a loop
        that reads as many values is reported as waits. Sizes are of the quietest step: a busy machine slows others."""
        numbers = range(len(self.steps.steps))
        reads = {
            site.place[:3]
            for site in self.calls.sites.values()
            if site.kind == "wait" and site.place and len(site.spans.get(0, ())) >= _SMALL_CALLS
        }
        for place, by_step in self.calls.plain.items() if self.gaps is None else ():
            calls = median(len(by_step.get(n, ())) for n in numbers)
            if place[:3] in reads or calls < _SMALL_CALLS:
                continue
            if min(median(b - a for a, b in spans) for spans in by_step.values() if spans) > _SMALL_US:
                continue
            us = median(length(union(by_step.get(n, []))) for n in numbers)
            loop = median(length(union(by_step.get(n, []), gap=_SMALL_GAP_US)) for n in numbers)
            yield CostlyPlace("small", place, (), "", calls, us, loop)

    def _loops(self, spans: Spans) -> Spans:
        """Values that are read one by one without another operator between them: the whole loop could be gained."""
        calls = union(spans)
        gaps = [(a, b) for (_, a), (b, _) in pairwise(calls)]
        if len(calls) < _LOOP_CALLS or median(b - a for a, b in gaps) > _LOOP_US:
            return calls
        idle = [(a, b) for a, b in gaps if bisect_left(self.begins, a) == bisect_left(self.begins, b)]
        return union([*calls, *idle])


def _lines(one: CostlyPlace, lines_of: LinesOf) -> tuple[int, ...]:
    if one.place is None:
        return ()
    if one.kind == "masked":  # only the source says what is in a mask: no line without it
        return lines_of(one.place, one.kind)
    return (one.place.at,) if one.place.at else lines_of(one.place, one.kind)


def _folded(found: Iterable[CostlyPlace]) -> tuple[CostlyPlace, ...]:
    """`row.cpu().numpy()` is one place, though it waits twice."""
    same: dict[object, CostlyPlace] = {}
    for one in found:
        place = one.place and one.place[:3] if one.lines else one.place
        key = (one.kind, place, one.lines, one.what)
        had = same.get(key)
        if had is None or had.place is None or one.place is None:
            same[key] = one
            continue
        names = dict.fromkeys(filter(None, (*had.place.callee.split("."), one.place.callee)))
        whole, us, gain = had.place._replace(callee=".".join(names)), had.us + one.us, had.gain_us + one.gain_us
        same[key] = replace(had, place=whole, calls=max(had.calls, one.calls), us=us, gain_us=gain)
    return tuple(sorted(same.values(), key=_gain_order))


def _gain_order(one: CostlyPlace) -> float:
    return -max(one.gain_us, one.us)


#: torch's iterators of a loader.
_HAS_WORKERS = {"_SingleProcessDataLoaderIter": False, "_MultiProcessingDataLoaderIter": True}


def _loader(trace: ProfileTrace) -> str:
    names = (e.name for e in trace.all_annotations() if e.name.startswith("enumerate(DataLoader)#"))
    name = min(names, default="")
    return name.partition("#")[2].removesuffix(".__next__")


def _largest(rows: Iterable[ProfileRow]) -> tuple[ProfileRow, ...]:
    return tuple(sorted(rows, key=lambda row: -row.us)[:_MOST_OPERATORS])
