"""Record graph breaks and recompilations of torch.compile (`--watch compile`).

The source is torch's structured trace (TORCH_TRACE writes it into files): a logger, which gets a handler here. Nothing
is printed. The compiled code is the same; writing graphs for the trace makes compiling slower, not the steps. Steps
without compilation are timed, and the first losses are read, to compare with a run without torch.compile.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import deque
from typing import Any

from distdbg.plain_text import first_words
from distdbg.worker.context import RankContext
from distdbg.worker.losses import Losses
from distdbg.worker.user_code import belongs_to_user

Site = tuple[str, int, str]

_TRACE = "torch.__trace"
#: DDP that is compiled with its model breaks the graph in its own forward on purpose.
_LEAVES_BY_ITSELF = "torch/nn/parallel/distributed.py"
#: Lines that are reported, each with its first reason.
_MOST_SITES = 50
_MOST_REASON = 600
#: Losses of so many steps are compared, and so many of the newest steps are timed.
_LOSSES, _TIMED = 20, 2000
_WARM_STEPS = 3
_BREAK = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\n")
_REASON = re.compile(r"(?:Graph Break )?Reason: (?P<reason>.*?)(?:\n\s*Developer debug context|\n\nUser code|\Z)", re.S)
_HINT = re.compile(r"^\s*Hint: (?P<hint>.+)$", re.M)
_VALUES = re.compile(r"(expected|actual|==|!=|<=|>=|<|>) ?(?:'[^']*'|-?[\w.\-]+)")
_STACK = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.M)


class CompileWatch(logging.Handler):
    """One for a rank; `finish` reports all. A handler must not raise."""

    def __init__(self, context: RankContext) -> None:
        super().__init__()
        self._context = context
        self._files: dict[object, str] = {}
        self._compiled: set[tuple[object, object]] = set()
        self._of_frame: dict[object, Site] = {}
        self._breaks: dict[Site, dict[str, Any]] = {}
        self._recompiles: dict[tuple[Site, str], dict[str, Any]] = {}
        self._pending: dict[tuple[object, object], str] = {}
        self._seconds = 0.0
        self._losses = Losses()
        self._first: int | None = None
        self._steps, self._last, self._busy = 0, 0.0, False
        self._times: deque[float] = deque(maxlen=_TIMED)
        self._unsubscribe = context.bus.subscribe_all(("backward", self._losses.add), ("step", self._stepped))
        logging.getLogger(_TRACE).addHandler(self)

    # -- messages of torch ----------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._receive(getattr(record, "metadata", None) or {}, getattr(record, "payload", None))
        except Exception as error:
            self._context.fact("compile-watch-failed", error=repr(error))
            logging.getLogger(_TRACE).removeHandler(self)

    def _receive(self, message: dict[str, Any], payload: object) -> None:
        which = message.get("frame_id"), message.get("frame_compile_id")
        if "str" in message:
            name, number = message["str"]
            self._files[number] = name
        elif "dynamo_start" in message:
            self._busy = True
            self._starts(which, message["dynamo_start"].get("stack") or [])
        elif "compilation_metrics" in message:
            self._compiles(which, message["compilation_metrics"])
        elif (name := message.get("artifact", {}).get("name")) == "dynamo_graph_break_reason":
            self._breaks_at(str(payload))
        elif name == "recompile_reasons":
            self._busy = True
            self._pending[which] = _newest(payload)

    def _starts(self, which: tuple[object, object], stack: list[dict[str, Any]]) -> None:
        """A frame is about to be compiled: the last of the stack, or the user's line that called other code."""
        places = [(self._file(f.get("filename")), f.get("line") or 0, _plain(f.get("name"))) for f in stack]
        users = [place for place in places if belongs_to_user(place[0])]
        if not places:
            return
        where = users[-1] if users else places[-1]
        self._of_frame[which[0]] = where
        reason = self._pending.pop(which, None)
        if reason is not None:
            self._again(where, reason)

    def _compiles(self, which: tuple[object, object], metrics: dict[str, Any]) -> None:
        """The frame is compiled; or it is not, and torch does not compile it again."""
        self._seconds += (metrics.get("dynamo_cumulative_compile_time_us") or 0) / 1e6
        reason, function = self._pending.pop(which, None), self._of_frame.get(which[0])
        if metrics.get("fail_type") is None:
            self._compiled.add(which)
        elif reason is not None and function is not None and "limit" in str(metrics.get("fail_reason")):
            self._again(function, reason, gave_up=True)

    def _file(self, number: object) -> str:
        """torch sends a file's name once in a process, and then its number."""
        if number not in self._files:
            known = getattr(sys.modules.get("torch._logging.structured"), "INTERN_TABLE", {})
            self._files.update((number, name) for name, number in known.items())
        return self._files.get(number, "")

    def _again(self, function: Site, message: str, *, gave_up: bool = False) -> None:
        """Count by the guard that failed, with the values that it got; a line of the user's in the message is more
        precise than the function."""
        first = message.strip().split("\n")[0]
        guard = first_words(re.sub(r"^\d+/\d+: ", "", first).partition("  #")[0].strip(), _MOST_REASON)
        where = next((site for site in reversed(_sites(message)) if belongs_to_user(site[0])), function)
        # the values differ each time, the guard does not
        key = where, _VALUES.sub("", guard)
        if key in self._recompiles or len(self._recompiles) < _MOST_SITES:
            found = self._recompiles.setdefault(key, {"guard_failed": guard, "count": 0, "of": function[2]})
            found["count"] += not gave_up
            found["gave_up"] = found.get("gave_up", False) or gave_up

    def _breaks_at(self, text: str) -> None:
        stack = _sites(text.partition("Traceback (")[0])
        users = [number for number, site in enumerate(stack) if belongs_to_user(site[0])]
        if any(site[0].endswith(_LEAVES_BY_ITSELF) for site in stack[users[-1] + 1 if users else 0 :]):
            return
        place, reason, hint = _BREAK.search(text), _REASON.search(text), _HINT.search(text)
        where = stack[users[-1]] if users else None
        if where is None and place is not None:
            where = place["file"], int(place["line"]), "?"
        if where is not None and (where in self._breaks or len(self._breaks) < _MOST_SITES):
            words = _short(reason["reason"] if reason else text)
            found = self._breaks.setdefault(where, {"reason": words, "hint": hint["hint"] if hint else "", "count": 0})
            found["count"] += 1

    # -- what the training does -----------------------------------------------------------------------------

    def _stepped(self, optimizer: object) -> None:
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        now, self._steps = time.perf_counter(), self._steps + 1
        if self._steps <= _LOSSES:
            self._losses.read(self._steps)
        if self._steps == _LOSSES:
            self._context.bus.unsubscribe("backward", self._losses.add)
        if not self._busy and self._steps > _WARM_STEPS:
            self._times.append(now - self._last)
        self._busy, self._last = False, time.perf_counter()
        logger = logging.getLogger(_TRACE)
        if self not in logger.handlers:  # torch._logging.set_logs takes all handlers away
            logger.addHandler(self)

    def model(self, model: object) -> None:
        """Not needed: compiled code has its names."""

    def end(self) -> None:
        logging.getLogger(_TRACE).removeHandler(self)
        self._unsubscribe()

    def finish(self, *, failed: bool) -> None:  # noqa: ARG002 -- what was seen until then was seen
        """The script has ended."""
        self.end()
        config = sys.modules.get("torch._dynamo.config")  # how often torch recompiles one function, at most
        limit = getattr(config, "recompile_limit", None)
        for where, found in self._breaks.items():
            self._report("graph-break", where, **found)
        for (where, _), found in self._recompiles.items():
            self._report("recompile", where, limit=limit if isinstance(limit, int) else None, **found)
        self._report("compile", None, compiled=len(self._compiled), functions=len(set(self._of_frame.values())),
                   seconds=round(self._seconds, 3), steps=self._steps, losses=self._losses.series,
                   step_ms=[round(1000 * t, 4) for t in self._times])  # fmt: skip

    def _report(self, guard: str, where: Site | None, **fields: object) -> None:
        self._context.link.send("fact", {
            "kind": "guard", "guard": guard, "mode": "warn", "step": self._steps,
            "where": list(where) if where else None, **fields,
        }, last_words=True)  # fmt: skip


def _newest(payload: object) -> str:
    """One reason for each existing graph, in JSON where there are several: the newest graph is first."""
    if isinstance(payload, str) and payload.startswith("["):
        payload = json.loads(payload)
    if isinstance(payload, list):
        payload = payload[0] if payload else ""
    return str(payload)


def _sites(text: str) -> list[Site]:
    """The frames of a stack in a message of torch, the innermost last."""
    return [(m["file"], int(m["line"]), _plain(m["function"])) for m in _STACK.finditer(text)]


def _plain(name: object) -> str:
    """After a break the rest of a function is compiled under another name."""
    text = str(name)
    found = re.fullmatch(r"torch_dynamo_resume_in_(\w+)_at_\d+", text)
    return found[1] if found else text


def _short(reason: str) -> str:
    """Without the first sentence, which all have, and in one line."""
    text = re.sub(r"^Encountered graph break when attempting to trace [^\n]*\n", "", reason.strip())
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith("Hint:")]
    return first_words(" ".join(lines), _MOST_REASON)
