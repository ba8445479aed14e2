"""Nest a thread's events as they were called, and find the costly calls by line.

The line of a call is found in the source, if distdbg's capture did not tell it, and it is at hand: see trace_lines.py.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from distdbg.evidence.frames import Activity, TorchCall, activity_of, is_user, torch_call_of
from distdbg.evidence.trace.events import LINE, HostEvent
from distdbg.evidence.trace.phases import Step
from distdbg.evidence.trace.places import TracePlace, called, frame_of
from distdbg.evidence.trace.spans import Span, Spans, within

_OF_TENSOR = re.compile(r"^<built-in method (\w+) of (?:Tensor|Parameter) object")
WAITS = frozenset({"item", "tolist", "cpu", "numpy"})
_WAITING_OPS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})
_WAITING_CALLS = frozenset({"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy"})
_ALLOCATING_CALLS = frozenset({"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaMallocHost"})
_CALLS_OF_CUDA = ("cuda_runtime", "cuda_driver")
_CONSTANTS = frozenset({"aten::zeros", "aten::ones", "aten::full", "aten::eye", "aten::arange"})
_MATH_ATTENTION = "aten::_scaled_dot_product_attention_math"
_ATTENTIONS = "aten::_scaled_dot_product_"
_ATTENTION = "aten::scaled_dot_product_attention"
#: Kinds of sites in torch's own Python.
_OF_TORCH = {TorchCall.BUFFERS: "buffers", TorchCall.DATA_PARALLEL: "parallel", TorchCall.WORKERS: "workers"}
_FLATTENS = "aten::flatten_dense_tensors"
_EVALUATES = "autograd::engine::evaluate_function"


@dataclass
class Site:
    """What one place does that costs: `spans` by step are when, outermost calls only."""

    kind: str
    place: TracePlace | None
    what: str
    args: Mapping[str, Any] | None = None
    spans: dict[int, list[Span]] = field(default_factory=dict)
    #: correlations of what it began on a device
    began: dict[int, list[int]] = field(default_factory=dict)
    #: by step: numbers in the buffers that DDP sends, workers that a loader starts, bytes that are copied to the host
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class Operator:
    """Self time in us, and calls, by step."""

    us: dict[int, float] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)


@dataclass
class Calls:
    sites: dict[tuple[str, TracePlace | None, str], Site] = field(default_factory=dict)
    operators: dict[str, Operator] = field(default_factory=dict)
    #: us by step of each line of the user's, and of what a function does beside its lines (`at` 0): without those
    #: below, and not of lines that communicate
    own: dict[TracePlace, dict[int, float]] = field(default_factory=dict)
    #: when each line of the user's ran operators that are costly for nothing else, outermost ones only, by step
    plain: dict[TracePlace, dict[int, list[Span]]] = field(default_factory=dict)


class _Open:
    """An event that has begun, with what its callees must know."""

    __slots__ = ("attention", "callee", "calls", "end", "event", "frame", "inner", "inside", "line", "loads", "nested",
                 "over", "pinned", "reads", "site", "talks", "users")  # fmt: skip

    def __init__(self, event: HostEvent, above: _Open | None, data: Spans) -> None:
        self.event, self.end, self.over = event, event.end, above
        #: time in operators below it, and in the user's lines and functions
        self.inner = self.nested = 0.0
        #: whether it is one of those
        self.users = event.category == LINE
        #: whether an operator, or a library's function, is between it and the user's
        self.inside: bool = above is not None and (above.inside or above.event.category == "cpu_op")
        #: whether it waits for other ranks: then its time is theirs
        self.talks = False
        #: whether it has begun a copy from pinned memory
        self.pinned = False
        #: whether it has begun a copy to the host and waited for it
        self.reads = False
        self.site: Site | None = above.site if above else None
        self.frame: TracePlace | None = above.frame if above else None
        self.callee: str = above.callee if above else ""
        #: (file, line) of the script, where it is known
        self.line: tuple[str, int] | None = above.line if above else None
        self.attention: Mapping[str, Any] | None = above.attention if above else None
        #: below a function of the user's that began while data were waited for
        self.loads: bool = above.loads if above else False
        #: whether the user's own function calls it
        self.calls = False
        if event.category == LINE:
            self.line = _line(event.args or {})
        elif event.category == "python_function":
            if (frame := frame_of(event.name)) is not None and is_user(frame.file):
                self.frame, self.callee, self.line, self.users, self.inside = frame, "", None, True, False
                self.loads = bool(within(data, event.begin, event.begin + 0.01))
            else:
                self.inside |= not event.name.startswith("<built-in")
                self.calls = self.frame is not None and not self.callee
                self.callee = self.callee or called(event.name)
        elif event.name == _ATTENTION:
            self.attention = event.args
        elif event.name.startswith("c10d::"):
            self.talks = True


@dataclass(frozen=True)
class TraceFacts:
    """What a walk must know of the whole trace."""

    steps: Sequence[Step]
    #: when the training thread waited for data
    data: Spans = field(default_factory=list)
    #: correlations of copies from pageable memory to a device
    pageable: frozenset[int] = frozenset()
    #: and from pinned memory
    pinned: frozenset[int] = frozenset()
    #: bytes of copies to ordinary memory of the host, by correlation: the call that begins one waits for it
    to_host: Mapping[int, int] = field(default_factory=dict)
    #: whether the trace has a GPU's events
    device: bool = False


def find_calls(threads: Iterable[Sequence[HostEvent]], looked: TraceFacts) -> Calls:
    """Needs arranged threads. Events outside of the steps are passed over."""
    found = Calls()
    for events in threads:
        _walk(found, events, looked)
    return found


def _walk(found: Calls, events: Sequence[HostEvent], looked: TraceFacts) -> None:
    steps = looked.steps
    begins = [step.begin for step in steps]
    top: _Open | None = None
    for event in events:
        if event.category == "user_annotation":
            continue  # begins in one frame and ends in another
        while top is not None and top.end <= event.begin:
            _close(found, top, steps, begins)
            top = top.over
        top = _Open(event, top, looked.data)
        number = _step_at(event.begin, steps, begins)
        if number is None:
            continue
        _note(found, top, number, looked)
        if event.correlation and top.site is not None:
            top.site.began.setdefault(number, []).append(event.correlation)
    while top is not None:
        _close(found, top, steps, begins)
        top = top.over


def _note(found: Calls, top: _Open, number: int, looked: TraceFacts) -> None:
    """Whether this call is costly: the outermost one is the place, and its time counts."""
    event, above = top.event, top.site
    kind = _kind(top, event, looked)
    if event.correlation in looked.pinned and top.over is not None:
        top.over.pinned = True
    if not kind:
        _count_in(found, top, number)
        return
    if above is None or (kind == "transfer" and above.kind in ("wait", "copy")):
        top.site = _site(found, kind, top)
        if kind == "transfer" and top.over is not None:
            top.over.site = top.site  # the operator waits for it next
    elif kind != above.kind or not (kind == "transfer" or (kind == "wait" and looked.device)):
        return
    if kind == "wait" and looked.device and event.category not in _CALLS_OF_CUDA:
        return  # a tensor on the host is not waited for: only CUDA's own calls tell
    if top.site is not None:
        spans = top.site.spans.setdefault(number, [])
        size = looked.to_host.get(event.correlation)
        follows_copy = top.over is not None and top.over.reads and size is None
        if spans and (follows_copy or (kind == "transfer" and event.correlation not in looked.pageable)):
            spans[-1] = (spans[-1][0], event.end)  # the wait for the copy that it follows: one call of the user's
        else:
            spans.append((event.begin, event.end))
        if top.over is not None and kind == "wait":
            top.over.reads = size is not None
        if size:
            top.site.counts[number] = top.site.counts.get(number, 0) + size


def _count_in(found: Calls, top: _Open, number: int) -> None:
    """What is costly for nothing that it is itself: a part of what is, or a plain operator."""
    event, site = top.event, top.site
    if site is None:
        direct = top.frame is not None and not (top.inside or top.loads or event.name.startswith(_EVALUATES))
        if event.category == "cpu_op" and direct:
            place = _place(top)
            if place is not None:
                by_step = found.plain.setdefault(place._replace(callee=""), {})
                by_step.setdefault(number, []).append((event.begin, event.end))
    elif site.kind == "buffers" and event.name == _FLATTENS:
        site.counts[number] = site.counts.get(number, 0) + _elements((event.args or {}).get("Input Dims"))
    elif site.kind == "workers" and _starts_a_process(event.name):
        site.counts[number] = site.counts.get(number, 0) + 1


def _starts_a_process(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.function == "start" and activity_of(frame.file, frame.function) is Activity.CHILD


def _elements(dims: object) -> int:
    """The number of elements in the list of tensors that is the first argument."""
    tensors = dims[0] if isinstance(dims, list) and dims else None
    shapes = tensors if isinstance(tensors, list) else ()
    return sum(prod(shape) for shape in shapes if isinstance(shape, list) and all(isinstance(n, int) for n in shape))


def _close(found: Calls, top: _Open, steps: Sequence[Step], begins: Sequence[float]) -> None:
    _count(found, top, steps, begins)
    event = top.event
    if event.category == "cpu_op":
        number = _step_at(event.begin, steps, begins)
        if number is not None and not event.name.startswith(_EVALUATES):
            operator = found.operators.setdefault(event.name, Operator())
            operator.us[number] = operator.us.get(number, 0.0) + max(0.0, event.end - event.begin - top.inner)
            operator.calls[number] = operator.calls.get(number, 0) + 1
        if top.over is not None:
            top.over.inner += event.end - event.begin
    elif top.over is not None:
        top.over.inner += top.inner


def _count(found: Calls, top: _Open, steps: Sequence[Step], begins: Sequence[float]) -> None:
    """The user's own time, line by line."""
    event = top.event
    lasts = event.end - event.begin
    if top.over is not None:
        top.over.nested += lasts if top.users else top.nested
        top.over.talks |= top.talks and not top.users
    number = _step_at(event.begin, steps, begins) if top.users and not top.talks else None
    if number is None or (place := _place(top)) is None:
        return
    by_step = found.own.setdefault(place, {})
    by_step[number] = by_step.get(number, 0.0) + max(0.0, lasts - top.nested)


def _step_at(t: float, steps: Sequence[Step], begins: Sequence[float]) -> int | None:
    at = bisect_right(begins, t) - 1
    return at if at >= 0 and t < steps[at].end else None


def _kind(top: _Open, event: HostEvent, looked: TraceFacts) -> str:  # noqa: PLR0911 -- a line a kind
    """wait, transfer, blocking (a wait for a copy from pinned memory), attention, masked, copy, constant, alloc, load
    (what the user's data set calls), and those of _OF_TORCH; "" for all others."""
    name = event.name
    if event.category == LINE:
        return ""
    if event.category == "python_function":
        frame = frame_of(name)
        call = torch_call_of(frame.file, frame.function) if frame is not None else None
        if ((found := _OF_TENSOR.match(name)) and found[1] in WAITS) or call is TorchCall.PRINT:
            return "wait"
        torchs = _OF_TORCH.get(call, "") if top.frame and call else ""
        return torchs or ("load" if top.loads and top.calls else "")
    if event.category in _CALLS_OF_CUDA:
        name = name.replace("hip", "cuda", 1)
        if event.correlation in looked.pageable:
            return "transfer"
        if name in _WAITING_CALLS:
            return "transfer" if _carries(top) else "blocking" if top.over is not None and top.over.pinned else "wait"
        return "wait" if event.correlation in looked.to_host else "alloc" if name in _ALLOCATING_CALLS else ""
    if name in _WAITING_OPS:
        # on a CPU, what torch reads of its own (an optimizer's count of steps) is none of the user's
        return "wait" if looked.device or not top.callee or top.callee in WAITS else ""
    if name.startswith(_ATTENTIONS):
        return "attention" if name == _MATH_ATTENTION else "masked" if _is_masked(top.attention) else ""
    if name == "aten::contiguous" or (name == "aten::clone" and _below(top, "aten::reshape")):
        return "copy"
    called = name in _CONSTANTS and not looked.device and top.frame is not None
    return "constant" if called and top.callee == name.removeprefix("aten::") else ""


def _is_masked(args: Mapping[str, Any] | None) -> bool:
    """One mask for all of the batch, of as many rows as columns: what a causal one is."""
    dims = (args or {}).get("Input Dims")
    mask = dims[3] if isinstance(dims, list) and len(dims) > 3 else None
    return isinstance(mask, list) and len(mask) >= 2 and mask[-1] == mask[-2] > 1 and all(n == 1 for n in mask[:-2])


def _carries(top: _Open) -> bool:
    """True where this call waits for a copy of pageable memory that the same operator has begun."""
    return top.site is not None and top.site.kind == "transfer"


def _below(top: _Open, name: str) -> bool:
    return top.over is not None and top.over.event.name == name


def _site(found: Calls, kind: str, top: _Open) -> Site:
    place = _place(top)
    if kind == "workers" and place is not None:
        place = place._replace(callee="")  # the loader's end, and its next beginning
    what = top.event.name if kind in ("alloc", "constant") else ""
    args = top.attention if kind == "attention" else top.event.args
    what += str((args or {}).get("Input Dims", "")) if kind == "attention" else ""
    if kind == "constant":
        what += f" {((args or {}).get('Concrete Inputs') or [''])[0]}"
    return found.sites.setdefault((kind, place, what), Site(kind, place, what, args))


def _place(top: _Open) -> TracePlace | None:
    place = top.frame._replace(callee=top.callee) if top.frame else None
    if top.line is not None and (place is None or f"/{top.line[0]}".endswith(f"/{place.file}")):
        place = (place or TracePlace(top.line[0], top.line[1], "<module>", top.callee))._replace(at=top.line[1])
    return place


def _line(args: Mapping[str, Any]) -> tuple[str, int] | None:
    file, line = args.get("file"), args.get("line")
    return (file, line) if isinstance(file, str) and isinstance(line, int) else None


#: Types of the arguments of scaled_dot_product_attention.
_FLOATS = {"float", "c10::Half", "c10::BFloat16"}
_HALVES = {"c10::Half", "c10::BFloat16"}
_MAX_HEAD_DIMENSION = 256


def fused(args: Mapping[str, Any] | None, *, device: bool) -> str | None:
    """The kernel that could have computed an attention that took the math path: `flash`, `memory-efficient`, "" if none
    could, None if that is not known.

    Requirements: torch's sdp_utils_cpp.cpp (flash on CPU: no dropout) and sdp_utils.cpp (flash: half precision, no
    mask; memory-efficient: also float, and a mask).
    """
    if not args:
        return None
    types, dims = args.get("Input type"), args.get("Input Dims")
    strides, concrete = args.get("Input Strides"), args.get("Concrete Inputs")
    if not all(isinstance(part, list) and len(part) >= 6 for part in (types, dims, strides, concrete)):
        return None
    try:
        return _fused_kernel(types, dims, strides, concrete, device)  # type: ignore[arg-type]
    except (TypeError, ValueError, IndexError):
        return None


def _fused_kernel(
    types: list[str], dims: list[list[int]], strides: list[list[int]], concrete: list[str], device: bool
) -> str:
    query, key, value = dims[:3]
    alike = len(query) == len(key) == len(value) == 4 and query[3] == key[3] == value[3] <= _MAX_HEAD_DIMENSION
    heads = query[:2] == key[:2] == value[:2] and min(query[2], key[2]) > 0
    straight = all(s and s[-1] == 1 for s in strides[:3])
    if not (alike and heads and straight and len(set(types[:3])) == 1 and types[0] in _FLOATS):
        return ""
    masked = types[3] != ""
    if not device:
        return "flash" if float(concrete[4] or 0) == 0 else ""
    if types[0] in _HALVES and not masked:
        return "flash"
    return "memory-efficient"
