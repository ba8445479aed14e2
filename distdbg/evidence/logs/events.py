"""What one process's text says went wrong: tracebacks, what native code said last, and known messages in any line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from distdbg.evidence.frames import DEBUG_SERVER, module_path
from distdbg.evidence.logs.messages import KnownMessage, hits_in, recognise
from distdbg.evidence.logs.sources import Source, SourceLine, starts_of
from distdbg.evidence.stacks.crash import fatal_error, terminate
from distdbg.evidence.stacks.tracebacks import HEADER, ParsedException, chain_text, chains
from distdbg.model import MOST_RANKS

#: A line that is an exception's last one, as Python prints it; the type by its usual endings.
_RAISED = re.compile(
    r"^(?:E +)?(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Failure|Exit|OutOfMemory))"
    r"(?:: (?P<message>.*))?$"
)
#: The type of what faulthandler prints.
CRASH = "Fatal Python error"
_CHILD = re.compile(r"^-- Process (\d{1,6}) terminated with the following error:")
_IGNORED = re.compile(
    r"^Exception ignored in|^--- Logging error ---|"
    r"^Exception in thread .*(?:_MultiProcessingDataLoader|tqdm|pin_memory)"
)
_NO_ERROR = {"DEBUG", "INFO", "NOTICE", "WARN", "WARNING"}
_GLOG_QUIET = re.compile(r"^\[?[IW]\d{4} \d\d:|^\[W |^\[I ")
_WARNING = re.compile(r"^\S*(?:Warning|warning): |\bWarning: |^\S+\.py:\d+: \w*Warning")
#: A line of shell trace, of a diff, or of source below a frame: text about an error, not one.
_QUOTED = re.compile(r"^\s*(?:\+|>|#|//|raise |assert |except |if |return |print\(|logger\.)|^ {4}")
_MISSING = re.compile(r"\[missing ranks: ([\d, ]{1,4000})\]")
_MISSING_BELOW = re.compile(r"^(\d{1,7}): \[")
_NUMBER = re.compile(r"\d{1,7}")
#: Steps of training after an error that show that it was handled; and where the end of a process follows them: others'
#: steps may come a little later than a rank's last words.
_LIVED_ON, LIVED_LONG = 3, 12
_MOST = 64


@dataclass(frozen=True)
class Event:
    """One error. `type` is empty for a line that is no exception. `at` is the index of its line in the source, `line`
    the 1-based number in the file, `t` epoch seconds."""

    at: int
    line: int
    t: float | None
    type: str
    message: str
    #: a traceback, or the line itself
    text: str
    where: tuple[str, int, str] | None = None
    child: int | None = None
    #: raised in the server of torch.distributed.debug, which is no part of the training
    of_debug_server: bool = False

    @property
    def first_line(self) -> tuple[str, str]:
        """The type, and the first line of the message."""
        return self.type, self.message.partition("\n")[0]

    @property
    def known(self) -> KnownMessage | None:
        return recognise(f"{self.type}: {self.message}" if self.type else self.message)


def events_in(source: Source, last_end: int = 0) -> list[Event]:
    """In the order of the text, without those that the process survived. `last_end` is the line of the log at which a
    launcher last reported the end of a process, 0 where none did."""
    text = source.text
    starts = starts_of(source.lines)
    found = {event.at: event for event in _tracebacks(source, text)}
    covered = _covered(source, found)
    for event in (*_native(source, text), *_lines(source, text, starts), *_bare(source)):
        if event.at not in covered:
            found.setdefault(event.at, event)
    ordered = [found[at] for at in sorted(found)]
    ordered = [one for one, after in zip_longest(ordered, ordered[1:]) if one is not None and not _repeats(one, after)]
    # of a message that is repeated often, the frames are not kept: see candidates.py
    served = {event.first_line for event in ordered if event.of_debug_server}
    ordered = [e for e in ordered if not e.of_debug_server and (e.where or e.first_line not in served)]
    return [event for event in ordered if not _lived_on(source, event, last_end)][:_MOST]


def _tracebacks(source: Source, text: str) -> Iterator[Event]:
    if HEADER not in text and "Error: " not in text:
        return
    for chain in chains(text):
        last = chain[-1]
        above = source.lines[max(0, chain[0].line - 2) : chain[0].line]
        if any(_IGNORED.match(line.text) for line in above):
            continue
        level = source.lines[chain[0].line].level or (above[-1].level if above else "")
        if level in _NO_ERROR:
            continue
        first = source.lines[chain[-2:][0].line]
        where = last.where if not _interleaved(source, last) else None
        child = next((int(found[1]) for line in above if (found := _CHILD.match(line.text))), None)
        yield Event(
            last.line, first.number, first.t, last.type, last.message, chain_text(chain),
            (where.file, where.line, where.function) if where else None, child, _is_of_debug_server(last),
        )  # fmt: skip


def _is_of_debug_server(error: ParsedException) -> bool:
    """The server runs in a process and threads of its own, and goes on after an error."""
    inside = any(module_path(frame.file).startswith(DEBUG_SERVER) for frame in error.frames)
    return inside and all(frame.is_library for frame in error.frames)


def _interleaved(source: Source, error: ParsedException) -> bool:
    """Two processes wrote at once, without marks: whose frames these are is not known."""
    above = source.lines[max(0, error.line - 4) : error.line]
    heads = [n for n, line in enumerate(above) if line.text.strip() == HEADER]
    return bool(heads) and all(line.text.startswith("  ") or line.text.strip() == HEADER for line in above[heads[-1] :])


def _covered(source: Source, found: dict[int, Event]) -> set[int]:
    """Lines that belong to a traceback: from its head to the end of its message."""
    lines: set[int] = set()
    for event in found.values():
        count = event.text.count("\n") + 1
        first = next((n for n in range(event.at, -1, -1) if source.lines[n].number <= event.line), event.at)
        lines |= set(range(first, event.at + count + 1))
    return lines


def _native(source: Source, text: str) -> Iterator[Event]:
    if "terminate called" in text and (said := terminate(text)) is not None and said[0]:
        line = source.lines[said[2]]
        yield Event(said[2], line.number, line.t, said[0], said[1], f"terminate called: {said[0]}\n  {said[1]}")
    if CRASH in text and (crash := fatal_error(text)) is not None:
        line = source.lines[crash.line]
        where = crash.where
        yield Event(crash.line, line.number, line.t, CRASH, crash.title, crash.text,
                    (where.file, where.line, where.function) if where else None)  # fmt: skip


def _lines(source: Source, text: str, starts: Sequence[int]) -> Iterator[Event]:
    for hit in hits_in(text):
        at = bisect_right(starts, hit.start) - 1
        line = source.lines[at]
        if "NCCL INFO" in line.text or (not hit.known.quiet and _is_quiet(line)):
            continue  # NCCL tells all that it tries as INFO
        raised = _RAISED.match(line.text)
        said = raised["message"] or "" if raised else line.text.strip()
        yield Event(at, line.number, line.t, raised["type"] if raised else "", said, line.text)


def _bare(source: Source) -> Iterator[Event]:
    """Exceptions whose traceback is not in the text."""
    for at, line in enumerate(source.lines):
        if "rror" not in line.text and "xception" not in line.text and "nterrupt" not in line.text:
            continue
        raised = _RAISED.match(line.text)
        if raised is None or _is_quiet(line):
            continue
        message = raised["message"] or ""
        yield Event(at, line.number, line.t, raised["type"], message, line.text)


def missing_ranks(lines: Sequence[str]) -> list[int]:
    """Of Horovod's report of a stall: `tensor [missing ranks: 1, 3]`, or `1: [tensor, …]` below `Missing ranks:`."""
    found: set[int] = set()
    listed = False
    for line in lines:
        for inside in _MISSING.finditer(line):
            found |= {int(rank) for rank in _NUMBER.findall(inside[1])}
        listed = listed or line.strip().endswith("Missing ranks:")
        if listed and (own := _MISSING_BELOW.match(line)):
            found.add(int(own[1]))
    return sorted(rank for rank in found if rank < MOST_RANKS)


def _is_quiet(line: SourceLine) -> bool:
    """It is said as a remark or a warning, or quotes text."""
    text = line.text
    return bool(line.level in _NO_ERROR or _GLOG_QUIET.match(text) or _WARNING.search(text) or _QUOTED.match(text))


def _repeats(event: Event, after: Event | None) -> bool:
    """What a parent raises of a process that it spawned, whose own traceback follows."""
    return event.child is None and after is not None and after.child is not None


def _lived_on(source: Source, event: Event, last_end: int) -> bool:
    """The same process went on training after it."""
    steps = [line.number for line in source.lines[event.at + 1 :] if line.progress]
    return len(steps) >= (LIVED_LONG if steps and last_end > steps[-1] else _LIVED_ON)
