"""Read traces of torch.profiler in pieces, plain or packed, whole or truncated, and what belongs to them.

That is: the user's sources, where they are older than the profile; what NVML reported about the rank's GPU meanwhile.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import tokenize
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_whole
from distdbg.collect.files.folder_files import FolderFiles, nothing_read
from distdbg.errors import NothingToAnalyse
from distdbg.evidence.jsonl import number, whole
from distdbg.evidence.logs.rank_names import rank_that_is_said
from distdbg.evidence.trace.device import NEAR_S, watched
from distdbg.evidence.trace.events import ProfileTrace
from distdbg.evidence.trace.lines import lines_of
from distdbg.evidence.trace.phases import processes
from distdbg.evidence.trace.places import TracePlace
from distdbg.evidence.trace.profile import RankProfile, digest
from distdbg.evidence.trace.text import NoTrace, TraceSplitter
from distdbg.rundir import Attempt, RunDir, open_regular

_PIECE = 1 << 20
_MOST_SOURCE = 4 << 20
_MOST_METRICS = 1 << 20
#: A line of a node with eight GPUs has 3 KB.
_LINE = 64 << 10
ENDINGS = (".json", ".json.gz")
#: Some 300 B each: what a laptop can hold of one trace.
_MOST_EVENTS = 4_000_000


def pieces(path: Path) -> Iterator[str]:
    """Ends where the bytes do, or where they cannot be unpacked any more. Raises OSError."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with open_regular(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        read = gzip.GzipFile(fileobj=raw).read1 if packed else raw.read
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
            while piece := read(_PIECE):
                yield decode(piece)


class Sources:
    """`written` is when the profile was (epoch seconds): a source that was changed since then is another."""

    def __init__(self, folders: Sequence[Path], written: float) -> None:
        self._folders, self._written = tuple(dict.fromkeys(folders)), written
        self._read = cache(self._text)

    def lines(self, place: TracePlace, kind: str) -> tuple[int, ...]:
        """The lines of the place's function that contain such a call; none where its source is not available."""
        text = self._read(place.file)
        return lines_of(text, place, kind) if text else ()

    def _text(self, file: str) -> str:
        """Empty where it is not found, or where two that differ fit."""
        found = {text for folder in self._folders if (text := self._one(folder / file))}
        return found.pop() if len(found) == 1 else ""

    def _one(self, path: Path) -> str:
        try:
            state = path.stat()
            if not path.is_file() or state.st_size > _MOST_SOURCE or state.st_mtime > self._written:
                return ""
            with tokenize.open(path) as file:
                return file.read()
        except (OSError, SyntaxError, ValueError):
            return ""


def source_folders(job: object) -> tuple[Path, ...]:
    """Folders that may contain the script of a run: its working directory, and the folder of the script."""
    fields = job if isinstance(job, dict) else {}
    cwd, program = fields.get("cwd"), fields.get("program")
    if not isinstance(cwd, str):
        return ()
    words = program if isinstance(program, list) else ()
    scripts = [word for word in words if isinstance(word, str) and word.endswith(".py")]
    return (*((Path(cwd) / script).parent for script in scripts[:1]), Path(cwd))


def with_watched(profile: RankProfile, attempt: Attempt) -> RankProfile:
    """The same profile with it, where its trace says when it was, and a look shows its rank on a GPU."""
    if profile.rank is None or profile.span is None:
        return profile
    begin, end = profile.span
    for lines in (_around(path, begin - NEAR_S, end + NEAR_S) for path in _metrics(attempt, profile.rank)):
        if (found := watched(lines, profile.rank, begin, end)) is not None:
            return replace(profile, watched=found)
    return profile


def _metrics(attempt: Attempt, rank: int) -> list[Path]:
    """The metrics of the rank's node where that is known; else those of all nodes."""
    node = (whole(read_whole(attempt.rank(rank).exit, _MOST_METRICS)[0] or "") or {}).get("node_rank")
    nodes = attempt.nodes()
    return [files.metrics for files in [n for n in nodes if n.node_rank == node] or nodes]


def _around(path: Path, begin: float, end: float) -> list[dict[str, Any]]:
    """Lines whose `t` is within the bounds. Lines are in the order of time, so the first is found by bisection."""
    try:
        with open_regular(path, buffering=0) as file:
            descriptor = file.fileno()
            low, high = 0, os.fstat(descriptor).st_size
            while high - low > _LINE:
                middle = (low + high) // 2
                t = _time_at(descriptor, middle)
                low, high = (middle, high) if t is not None and t < begin else (low, middle)
            text = os.pread(descriptor, _MOST_METRICS, low).decode("utf-8", "replace")
    except OSError:
        return []  # the GPU's figures only add to a profile; a run's own evidence says that they are missing
    found = [line for line in map(whole, text.split("\n")) if line is not None]
    return [line for line in found if (t := number(line, "t")) is not None and begin <= t <= end]


def _time_at(descriptor: int, offset: int) -> float | None:
    """The time of the first whole line from `offset` on; None where there is none."""
    for text in os.pread(descriptor, _LINE, offset).decode("utf-8", "replace").split("\n")[1:]:
        if (line := whole(text)) is not None and (t := number(line, "t")) is not None:
            return t
    return None


class TraceUnreadable(Exception):
    """Says why a file gave nothing."""


class NotATrace(TraceUnreadable):
    """It never was one."""


def read_traces(
    files: Sequence[Path], say: Callable[[str], None] = lambda _: None
) -> tuple[tuple[RankProfile, ...], list[tuple[str, str]]]:
    """What was read, by rank, and (name, why not) for the rest; the traces below a folder are read, too.

    Raises NothingToAnalyse where no trace is among them, EvidenceUnreadable where none can be used.
    """
    profiles: list[RankProfile] = []
    unread: list[tuple[str, str]] = []
    folders = {path: FolderFiles(path, ENDINGS) for path in files if path.is_dir()}
    wanted = [file for path in files for file in folders.get(path, [path])]
    unread += [left for folder in folders.values() for left in folder.unread]
    for count, path in enumerate(wanted, 1):
        say(f"reading {path.name} ({count} of {len(wanted)})")
        try:
            profiles.append(_read_and_beside(path))
        except TraceUnreadable as error:
            if not (isinstance(error, NotATrace) and path not in files):  # of a folder, what is no trace is passed over
                unread.append((str(path), str(error)))
    if not profiles and not unread:
        names = ", ".join(repr(str(path)) for path in files[:4])
        raise NothingToAnalyse(f"no trace is in {names}", "torch.profiler writes them; files end in .json or .json.gz.")
    if not profiles:
        raise nothing_read(unread, "Name a trace that torch.profiler's export_chrome_trace wrote.")
    return tuple(sorted(profiles, key=lambda p: (p.rank is None, p.rank or 0, p.path))), unread


def _read_and_beside(path: Path) -> RankProfile:
    """Read a rank's own profile in a run, with the folders of the run's script and the rank's GPU."""
    above = path.absolute().parents
    if path.parent.name != "profile" or len(above) <= 5:
        return read_trace_file(path, str(path))
    profile = read_trace_file(path, str(path), source_folders(RunDir(above[5]).read_job()))
    return with_watched(profile, Attempt(above[3]))


def read_trace_file(path: Path, name: str, folders: Sequence[Path] = ()) -> RankProfile:
    """The answer of one file; `name` is what citations call it. The user's sources are looked for in `folders`.

    Raises TraceUnreadable.
    """
    splitter, trace, unknown = TraceSplitter(), ProfileTrace(), []
    try:
        written = path.stat().st_mtime
        for piece in pieces(path):
            for event in splitter.feed(piece):
                trace.add(event)
            if splitter.events > _MOST_EVENTS:
                break
        splitter.close()
    except NoTrace as error:
        raise NotATrace(str(error)) from None
    except OSError as error:
        raise TraceUnreadable(error.strerror or str(error)) from None
    if splitter.events > _MOST_EVENTS:
        unknown.append((f"the rest of {name}", f"it has more than {_MOST_EVENTS:,} events: profile fewer steps"))
    elif splitter.broken:
        unknown.append((f"the rest of {name}", splitter.broken))
    elif not splitter.whole:
        unknown.append((f"the rest of {name}", f"it is cut short after {splitter.events:,} events"))
    if lost := trace.unusable + splitter.no_objects:
        because = "they have no name, no time or no duration"
        unknown.append((f"{lost:,} of {splitter.events:,} events of {name}", because))
    if not trace.operators:
        raise TraceUnreadable(_why_nothing(splitter, trace))
    if (merged := processes(trace)) > 1:
        raise TraceUnreadable(f"it is the merged trace of {merged} processes: name the traces of the ranks")
    sources = Sources((*folders, path.absolute().parent, Path.cwd()), written)
    profile = digest(trace, splitter.header, name, rank_that_is_said(name), sources.lines)
    return replace(profile, unknown=(*unknown, *profile.unknown))


def _why_nothing(splitter: TraceSplitter, trace: ProfileTrace) -> str:
    if not splitter.events:
        return "it has no events: no step was recorded" if splitter.whole else "it is cut short before its first event"
    if trace.foreign > trace.events:
        return "it is another tool's trace: none of its events is an operator or a kernel of torch"
    return "none of its events is an operator or a kernel of torch"
