"""Lint many files: what has been found before is read from a cache, the rest is worked out on all CPUs.

What is kept of a file holds as long as its text, those of all files that it was joined with, the list of the files that
are linted together, and distdbg itself are the same.
"""

from __future__ import annotations

import gc
import hashlib
import io
import os
import pickle
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distdbg import __version__
from distdbg.lint.linting import FileRun, FilesLinter, Linted, combined
from distdbg.lint.script.parsing import UnreadableScript
from distdbg.lint.script.work_limit import WorkLimit
from distdbg.rundir import open_regular
from distdbg.whole_file import write_whole

#: with less text than this, in characters, starting processes costs more than it saves
_WORTH_PROCESSES = 400_000
#: files for one process at a time: neighbours, which often use one another
_CHUNK = 16
_MOST_CACHES = 32
_MOST_BYTES = 64_000_000
#: all that a cache may be made of
_KEPT_CLASSES = {
    ("distdbg.collect.files.linted_files", "_Kept"),
    ("distdbg.lint.linting", "FileRun"),
    ("distdbg.lint.linting", "FoundHit"),
    ("distdbg.lint.rule", "Insert"),
    ("distdbg.model", "CauseClass"),
    ("distdbg.model", "Citation"),
    ("distdbg.model", "Finding"),
    ("builtins", "frozenset"),
}
#: Seconds of CPU time for one file and the files that it is joined with. Chosen, not measured.
MAX_CPU_S_PER_FILE = 30
_linter: FilesLinter | None = None


@dataclass(frozen=True)
class _Kept:
    """A run, and the digests of the texts that it depends on."""

    run: FileRun
    texts: tuple[tuple[str, bytes], ...]


def lint_together(
    texts: Mapping[str, str], wanted: Collection[str] | None = None, *, cached: bool = True
) -> dict[str, Linted | UnreadableScript]:
    """Lints files by path, each joined with what it calls from the others."""
    digests = {path: _digest(text).digest() for path, text in texts.items()}
    place = _place(texts) if cached else None
    before = _read(place) if place is not None else {}
    known = {p: kept for p, kept in before.items() if all(digests.get(f) == d for f, d in kept.texts)}
    runs = {path: known[path].run for path in texts if path in known}
    todo = [path for path in texts if path not in runs]
    for run in _runs(texts, todo):
        runs[run.path] = run
        if run.took_too_long:
            known.pop(run.path, None)
            continue
        known[run.path] = _Kept(run, tuple((f, digests[f]) for f in sorted(run.consulted)))
    if place is not None and todo:
        _write(place, known)
    return combined([runs[path] for path in texts], wanted)


def cpu_limit() -> WorkLimit:
    """The limit for one file, counted by the CPU time of the thread that calls this."""
    return WorkLimit(time.thread_time, MAX_CPU_S_PER_FILE)


def _digest(text: str) -> hashlib.blake2b:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)


# processes -----------------------------------------------------------------------------------------------------------


def _runs(texts: Mapping[str, str], todo: Sequence[str]) -> Iterator[FileRun]:
    global _linter  # noqa: PLW0603 -- what a forked process inherits
    _linter = FilesLinter(texts, cpu_limit())
    collects = gc.isenabled()
    gc.disable()  # trees have no cycles, and looking for some in them takes a third of the time
    workers = min(_cpus(), len(todo) // _CHUNK)
    done: set[str] = set()
    try:
        if workers > 1 and sum(len(texts[p]) for p in todo) > _WORTH_PROCESSES and sys.platform == "linux":
            import multiprocessing  # these take a tenth of a second, which a cache that has all saves
            from concurrent.futures import ProcessPoolExecutor
            from concurrent.futures.process import BrokenProcessPool

            with suppress(OSError, BrokenProcessPool):  # no more processes, or one was killed: here, then
                chunks = [todo[n : n + _CHUNK] for n in range(0, len(todo), _CHUNK)]
                with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
                    for runs in pool.map(_chunk, chunks):
                        yield from runs
                        done.update(run.path for run in runs)
        yield from (_linter.run(path) for path in todo if path not in done)
    finally:
        _linter = None
        if collects:
            gc.enable()


def _chunk(paths: Sequence[str]) -> list[FileRun]:
    assert _linter is not None
    return [_linter.run(path) for path in paths]


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# cache ---------------------------------------------------------------------------------------------------------------


def _place(texts: Mapping[str, str]) -> Path | None:
    """The cache of these files: one for each list of paths, for this distdbg, for this Python."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "distdbg" / "lint"
        if not home.is_absolute():
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # no home
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        return None  # others could put anything there
    made_of = "\0".join([__version__, _engine(), sys.version, str(Path.cwd()), *sorted(texts)])
    return folder / f"{_digest(made_of).hexdigest()}.pickle"


@cache
def _engine() -> str:
    """Sizes and times of this package's files: in a checkout the version alone says too little."""
    root = Path(__file__).resolve().parents[2]
    files = [
        f for part in ("lint", "findings", "evidence", "diagnosis/waits") for f in sorted((root / part).rglob("*.py"))
    ]
    return ",".join(f"{s.st_size}-{s.st_mtime_ns}" for s in (f.stat() for f in files))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _KEPT_CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong there")
        return super().find_class(module, name)


def _read(place: Path) -> dict[str, _Kept]:
    try:
        with open_regular(place) as file:
            found = _Unpickler(io.BytesIO(file.read(_MOST_BYTES))).load()
    except Exception:
        return {}
    return found if isinstance(found, dict) and all(isinstance(k, _Kept) for k in found.values()) else {}


def _write(place: Path, known: Mapping[str, _Kept]) -> None:
    with suppress(OSError):
        others = sorted(place.parent.glob("*.pickle"), key=lambda p: p.stat().st_mtime)
        for old in others[: max(len(others) - _MOST_CACHES, 0)]:
            old.unlink(missing_ok=True)
        whole = pickle.dumps(dict(known), protocol=pickle.HIGHEST_PROTOCOL)
        if len(whole) < _MOST_BYTES:
            write_whole(place, whole)
