"""Read traces of torch.profiler in pieces, plain or packed, whole or truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from distdbg.collect.files.folder_files import FolderFiles, nothing_read
from distdbg.collect.files.trace_pieces import pieces
from distdbg.collect.files.trace_sources import Sources, source_folders
from distdbg.collect.runs.profile_watched import with_watched
from distdbg.errors import NothingToAnalyse
from distdbg.evidence.logs.rank_names import rank_that_is_said
from distdbg.evidence.trace.events import Trace
from distdbg.evidence.trace.phases import processes
from distdbg.evidence.trace.profile import RankProfile, digest
from distdbg.evidence.trace.text import NoTrace, TraceSplitter
from distdbg.rundir import Attempt, RunDir

ENDINGS = (".json", ".json.gz")
#: Some 300 B each: what a laptop can hold of one trace.
_MOST_EVENTS = 4_000_000


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
    for number, path in enumerate(wanted, 1):
        say(f"reading {path.name} ({number} of {len(wanted)})")
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
    """Of a rank's own profile in a run: where the run's script may lie, and what the run knows of the rank's GPU."""
    above = path.absolute().parents
    if path.parent.name != "profile" or len(above) <= 5:
        return read_trace_file(path, str(path))
    profile = read_trace_file(path, str(path), source_folders(RunDir(above[5]).read_job()))
    return with_watched(profile, Attempt(above[3]))


def read_trace_file(path: Path, name: str, folders: Sequence[Path] = ()) -> RankProfile:
    """The answer of one file; `name` is what citations call it. The user's sources are looked for in `folders`.

    Raises TraceUnreadable.
    """
    splitter, trace, unknown = TraceSplitter(), Trace(), []
    try:
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
    sources = Sources((*folders, path.absolute().parent, Path.cwd()), path.stat().st_mtime)
    profile = digest(trace, splitter.header, name, rank_that_is_said(name), sources.lines)
    return replace(profile, unknown=(*unknown, *profile.unknown))


def _why_nothing(splitter: TraceSplitter, trace: Trace) -> str:
    if not splitter.events:
        return "it has no events: no step was recorded" if splitter.whole else "it is cut short before its first event"
    if trace.foreign > trace.events:
        return "it is another tool's trace: none of its events is an operator or a kernel of torch"
    return "none of its events is an operator or a kernel of torch"
