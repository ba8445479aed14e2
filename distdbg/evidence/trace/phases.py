"""Divide each step of a trace into phases whose times sum to the step.

Steps: distdbg's own marks, else ProfilerStep, else from one end of an optimizer's step to the next. Of several steps
the middle half by duration is taken, and its mean: as robust as a median, and the parts still sum to the whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from distdbg.evidence.jsonl import number as decimal
from distdbg.evidence.trace import marks
from distdbg.evidence.trace.events import DeviceEvent, HostEvent, Key, ProfileTrace
from distdbg.evidence.trace.spans import Spans, length, overlap, union, within, without

#: The parts of a step, in the order of the table. What is hidden is communication beneath other work: in no sum.
PARTS = ("data wait", "preparing", "forward", "backward", "communication", "optimizer", "other")
_COMMUNICATION = re.compile(r"^(?:gloo|nccl|ucc|mpi|xccl):|^c10d::|record_param_comms")
_HOST_CATEGORIES = ("user_annotation", "cpu_op")
_KERNEL_COMMUNICATION = re.compile(r"nccl|rccl", re.IGNORECASE)
#: A moment has to have a length to lie within a span.
_MOMENT_US = 0.002
_EVALUATES = "autograd::engine::evaluate_function"
#: What cuts a trace into steps that are numbered as the job's.
OWN_MARKS = "distdbg's marks"
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)")


@dataclass(frozen=True)
class Step:
    label: str
    begin: float
    end: float
    #: of it, how long its thread was ready and had no processor, where the trace says so
    queued_us: float = 0.0

    @property
    def lasts(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Steps:
    """`by` says what cut them; `thread` is the one that trains."""

    steps: tuple[Step, ...]
    by: str
    thread: Key

    @property
    def typical(self) -> tuple[Step, ...]:
        """The middle half by duration, at least one."""
        ordered = sorted(self.steps, key=lambda s: s.lasts)
        cut = len(ordered) // 4
        if len(ordered) == 3:
            return (ordered[1],)
        return tuple(sorted(ordered[cut : len(ordered) - cut], key=lambda s: s.begin))


@dataclass(frozen=True)
class TracePhases:
    """Spans of each phase over the whole trace; they may overlap, `parted` decides.

    With a device, forward, backward and optimizer are when its kernels ran, by the phase that launched them; then data
    are waited for, and prepared, only where it was idle or ran what preparing has launched. Without one, they are when
    the host was in them.
    """

    data: Spans
    preparing: Spans
    forward: Spans
    backward: Spans
    optimizer: Spans
    communication: Spans
    hidden: Spans
    device: bool = False

    def parted(self, step: Step) -> dict[str, float]:
        """us of each of PARTS; they sum to the step."""
        left: Spans = [(step.begin, step.end)]
        found = dict.fromkeys(PARTS, 0.0)
        layers = [
            ("communication", self.communication), ("data wait", self.data), ("optimizer", self.optimizer),
            ("backward", self.backward), ("preparing", self.preparing), ("forward", self.forward),
        ]  # fmt: skip
        if self.device:
            layers += [layers.pop(4), layers.pop(1)]
        for name, spans in layers:
            here = within(spans, step.begin, step.end)
            found[name] = length(overlap(left, here))
            left = without(left, here)
        return found | {"other": length(left)}


def find_steps(trace: ProfileTrace) -> Steps | None:
    """None where the trace has no step, nor two ends of an optimizer's."""
    thread = _training_thread(trace)
    if thread is None:
        return None
    own, torchs, ends = [], [], []
    for event in trace.all_annotations():
        if (number := marks.step_of(event.name)) is not None:
            own.append(Step(str(number), event.begin, event.end, decimal(event.args or {}, marks.QUEUED) or 0.0))
        elif found := _PROFILER_STEP.match(event.name):
            torchs.append(Step(found[1], event.begin, event.end))
        elif event.name.startswith("Optimizer.step#"):
            ends.append(event.end)
    between = [Step(str(n), a, b) for n, (a, b) in enumerate(pairwise(sorted(ends)), 1)]
    for steps, by in ((own, OWN_MARKS), (torchs, "ProfilerStep"), (between, "the optimizer's steps")):
        if cut := sorted((s for s in steps if s.lasts > 0), key=lambda s: s.begin):
            return Steps(tuple(cut), by, thread)
    return None


def _training_thread(trace: ProfileTrace) -> Key | None:
    """The thread of the optimizer, else of torch's steps, else of Python's frames, else of most operators."""

    def count(thread: Key) -> list[int]:
        names = [event.name for event in trace.annotations.get(thread, ())]
        categories = Counter(event.category for event in trace.threads[thread])
        optimizer = sum(name.startswith("Optimizer.step#") for name in names)
        steps = sum(_PROFILER_STEP.match(name) is not None for name in names)
        return [optimizer, steps, categories["python_function"], categories["cpu_op"]]

    counts = {thread: count(thread) for thread in trace.threads}
    thread = max(counts, key=lambda t: counts[t], default=None)
    return thread if thread is not None and any(counts[thread]) else None


def processes(trace: ProfileTrace) -> int:
    """How many processes have steps in it: more than one where several ranks' traces were merged."""
    return len({
        pid for (pid, _), events in trace.annotations.items() for e in events
        if marks.step_of(e.name) is not None or _PROFILER_STEP.match(e.name)
    })  # fmt: skip


def whole(trace: ProfileTrace) -> Steps | None:
    """Where there are no steps: all of it. None where no operator is in it."""
    thread = _training_thread(trace)
    events = [e for e in trace.threads.get(thread, ()) if e.category == "cpu_op"] if thread else []
    if thread is None or not events:
        return None
    step = Step("all of it", events[0].begin, max(e.end for e in events))
    return Steps((step,), "nothing", thread) if step.lasts > 0 else None


def find_phases(trace: ProfileTrace, steps: Steps) -> TracePhases:
    """Needs an arranged trace."""
    main = trace.threads[steps.thread]
    said = list(trace.all_annotations())
    data = _named(said, lambda n: n.startswith("enumerate(DataLoader)") or n == marks.LOADER)
    optimizer = _named(said, lambda n: n.startswith("Optimizer.") or n == marks.OPTIMIZER)
    evaluations = _evaluations(main, trace.host_events(), [*data, *optimizer])
    backward = union([*_named(said, lambda n: n == marks.BACKWARD), *evaluations])
    # zero_grad may be before or after the forward: no forward begins with it, or after it
    before = union([*data, *backward, *_named(said, lambda n: n.startswith("Optimizer.step#") or n == marks.OPTIMIZER)])
    marked = _named(said, lambda n: n == marks.FORWARD or n.endswith("DataParallel.forward"))
    begins = [begin for begin, _ in marked], _operators(main, union([*before, *optimizer]))
    preparing, forward = _before_backward(steps, before, backward, begins, {end for _, end in data})
    exposed, hidden = _communication(trace)
    phases = TracePhases(data, preparing, union([*marked, *forward]), backward, optimizer, exposed, hidden)
    return _on_device(trace, phases) if any(trace.devices.values()) else phases


def _on_device(trace: ProfileTrace, host: TracePhases) -> TracePhases:
    """Each kernel belongs to the phase that the host was in when it launched it."""
    launched = {e.correlation: e.begin for e in trace.host_events() if e.correlation}
    spans = {name: getattr(host, name) for name in ("optimizer", "backward", "preparing", "forward")}
    ran: dict[str, Spans] = {name: [] for name in spans}
    for kernel in (k for events in trace.devices.values() for k in events):
        begin = launched.get(kernel.correlation)
        if begin is None or is_communication(kernel):
            continue
        phase = next((name for name, known in spans.items() if within(known, begin, begin + _MOMENT_US)), None)
        if phase is not None:
            ran[phase].append((kernel.begin, kernel.end))
    ran["preparing"] += host.preparing
    return replace(host, device=True, **{name: union(found) for name, found in ran.items()})


def _named(events: Iterable[HostEvent], fits: Callable[[str], bool]) -> Spans:
    return union((e.begin, e.end) for e in events if fits(e.name))


def _evaluations(main: Sequence[HostEvent], events: Iterable[HostEvent], not_over: Spans) -> Spans:
    """The stretches of backward passes: from the first node of a graph to its last, until the training thread runs an
    operator of its own."""
    nodes = sorted((e.begin, e.end) for e in events if e.name.startswith(_EVALUATES))
    stops = sorted([*_operators(main, union(nodes)), *(begin for begin, _ in not_over)])
    joined: Spans = []
    for begin, end in nodes:
        if joined:
            first, last = joined[-1]
            at = bisect_left(stops, last)
            if at == len(stops) or stops[at] >= begin:
                joined[-1] = (first, max(last, end))
                continue
        joined.append((begin, end))
    return joined


def _find_begin(begins: Iterable[Sequence[float]], after: float, before: float) -> float | None:
    """Where a forward begins: at the first mark in between, else at the first operator."""
    for times in begins:
        index = bisect_left(times, after)
        if index < len(times) and times[index] < before:
            return times[index]
    return None


def _operators(main: Sequence[HostEvent], outside: Spans) -> list[float]:
    """When the training thread began each operator that is not in these spans."""
    return [e.begin for e in main if e.category == "cpu_op" and not within(outside, e.begin, e.begin + _MOMENT_US)]


def _before_backward(
    steps: Steps, marked: Spans, backward: Spans, begins: Iterable[Sequence[float]], batches: set[float]
) -> tuple[Spans, Spans]:
    """(preparing, forward) before each backward. The forward begins after the previous phase and includes the loss. The
    time before the forward is preparing if a batch had just arrived, else not known."""
    ends = [begin for begin, _ in backward]
    preparing: Spans = []
    forward: Spans = []
    for step in steps.steps:
        for end in ends[bisect_left(ends, step.begin) : bisect_left(ends, step.end)]:
            before = max((until for _, until in within(marked, step.begin, end)), default=step.begin)
            first = _find_begin(begins, before, end)
            if first is not None:
                forward.append((first, end))
                preparing += [(before, first)] if before in batches else []
    return union(preparing), union(forward)


def _communication(trace: ProfileTrace) -> tuple[Spans, Spans]:
    """(exposed, hidden): on a device, while no other kernel ran; without one, while no operator ran."""
    if any(trace.devices.values()):
        kernels = [k for events in trace.devices.values() for k in events]
        talk = union((k.begin, k.end) for k in kernels if is_communication(k))
        work = union((k.begin, k.end) for k in kernels if k.category == "kernel" and not is_communication(k))
    else:
        host = list(trace.host_events())
        # what hands it over is of it: on a crowded machine that alone takes milliseconds
        talk = union((e.begin, e.end) for e in host if e.category in _HOST_CATEGORIES and _COMMUNICATION.match(e.name))
        work = union((e.begin, e.end) for e in host if e.category == "cpu_op"
                     and not _COMMUNICATION.match(e.name) and not e.name.startswith(_EVALUATES))  # fmt: skip
    return without(talk, work), overlap(talk, work)


def is_communication(kernel: DeviceEvent) -> bool:
    return kernel.category == "kernel" and _KERNEL_COMMUNICATION.search(kernel.name) is not None
