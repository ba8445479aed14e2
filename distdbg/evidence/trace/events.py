"""Keep of a trace's events times, names and kinds, by thread and by device, and few of their arguments.

Sources: what torch 2.x writes (kineto's output_json.cpp), and the names of categories that torch 1.8 wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from distdbg.evidence.jsonl import integer, number
from distdbg.evidence.trace import marks

#: Categories of before torch 1.12, and kineto's of today.
_OLD = {"Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
        "Memset": "gpu_memset", "Python function": "python_function", "Python": "python_function"}  # fmt: skip
#: A line of the script, as distdbg's capture puts it beside the calls that it makes: see profile_names.LINE.
LINE = "line"
#: Their times are rounded another way than the calls' that they enclose.
_ROUNDING_US = 0.005
_HOST = frozenset({"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>$")
#: Operators whose arguments tell something; those of all others are let go.
_TELLING = ("aten::scaled_dot_product_attention", "aten::zeros", "aten::ones", "aten::full", "aten::eye",
            "aten::arange", "aten::flatten_dense_tensors")  # fmt: skip
_OF_STEPS = (marks.QUEUED,)
_ARGUMENTS = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")
#: (pid, tid)
Key = tuple[int | str, int | str]


class HostEvent(NamedTuple):
    """Times in us. `correlation` joins a call of CUDA to what it began on the device; 0 for none."""

    begin: float
    end: float
    category: str
    name: str
    correlation: int = 0
    args: Mapping[str, Any] | None = None


class DeviceEvent(NamedTuple):
    """`size` is the number of bytes of a copy, 0 if it is not known."""

    begin: float
    end: float
    category: str
    name: str
    correlation: int = 0
    size: int = 0


@dataclass
class ProfileTrace:
    """One process' events. `threads` by (pid, tid), `devices` by number; in no order until `arranged`."""

    threads: dict[Key, list[HostEvent]] = field(default_factory=dict)
    devices: dict[int, list[DeviceEvent]] = field(default_factory=dict)
    #: the `user_annotation` events among them, by thread
    annotations: dict[Key, list[HostEvent]] = field(default_factory=dict)
    #: of the thread that trains
    lines: list[HostEvent] = field(default_factory=list)
    #: events that no torch.profiler writes
    foreign: int = 0
    #: events that should last, and have no name, no time or no duration
    unusable: int = 0
    _names: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return sum(map(len, self.threads.values())) + sum(map(len, self.devices.values()))

    def host_events(self) -> Iterator[HostEvent]:
        return chain.from_iterable(self.threads.values())

    def all_annotations(self) -> Iterator[HostEvent]:
        return chain.from_iterable(self.annotations.values())

    @property
    def operators(self) -> int:
        """How many are torch's own: operators, or kernels."""
        host = sum(e.category != "python_function" for e in self.host_events())
        return host + sum(map(len, self.devices.values()))

    def add(self, event: Mapping[str, Any]) -> None:
        """Keeps what is of use of one event of the file; anything else is passed over."""
        if event.get("ph") != "X":
            return
        raw = str(event.get("cat", ""))
        category = _OLD.get(raw, raw)
        begin, lasts = number(event, "ts"), number(event, "dur")
        name = event.get("name")
        if begin is None or lasts is None or lasts < 0 or not isinstance(name, str):
            self.unusable += 1
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if name == marks.LINE:
            said = {"file": args.get("file"), "line": args.get("line")}
            self.lines.append(HostEvent(begin - _ROUNDING_US, begin + lasts + _ROUNDING_US, LINE, name, 0, said))
        elif category in _HOST:
            if category == "cpu_op" and name.startswith(("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)")):
                category = "user_annotation"  # as torch 1.8 had them
            telling = _OF_STEPS if name.startswith(marks.STEP) else _ARGUMENTS if name in _TELLING else ()
            kept = {k: args[k] for k in telling if k in args}
            key = (_plain(event.get("pid")), _plain(event.get("tid")))
            host_event = HostEvent(begin, begin + lasts, category, self._name(name),
                                   integer(args, "correlation") or 0, kept if telling else None)  # fmt: skip
            self.threads.setdefault(key, []).append(host_event)
            if category == "user_annotation":
                self.annotations.setdefault(key, []).append(host_event)
        elif category in _DEVICE:
            device = integer(args, "device")
            device = integer(event, "pid") if device is None else device
            correlation = integer(args, "correlation") or 0
            self.devices.setdefault(device or 0, []).append(
                DeviceEvent(begin, begin + lasts, category, self._name(name), correlation, integer(args, "bytes") or 0)
            )
        else:
            self.foreign += category not in ("Trace", "gpu_user_annotation", "overhead", "Overhead", "cuda_sync")

    def arranged(self) -> None:
        """Sort events by time, callers before what they call."""
        for events in self.threads.values():
            events.sort(key=lambda e: (e.begin, -e.end))
        for kernels in self.devices.values():
            kernels.sort()

    def _name(self, name: str) -> str:
        plain = _ADDRESS.sub(">", name) if name.startswith("<") else name
        return self._names.setdefault(plain, plain)


def _plain(value: object) -> str | int:
    return value if isinstance(value, int) else str(value)
