"""Read the arguments of `distdbg explain`: a run, a dump, files of others, or several of these."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob
from itertools import chain
from pathlib import Path

from distdbg.collect.files.folder_files import FolderFiles
from distdbg.collect.files.foreign_files import ForeignFiles, Progress, not_shown
from distdbg.collect.files.log_text import STDIN
from distdbg.collect.runs.dump_evidence import is_dump, load_dump_alone, unseen
from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, UsageError
from distdbg.evidence.run import RunEvidence
from distdbg.model import Unknown
from distdbg.rundir import RunDir, refuse_unreadable


def load(given: Sequence[Path], progress: Progress = not_shown) -> RunEvidence:
    """All of it together. `progress` is called with what is being read, and with the share that is done.

    The evidence lives as long as the command: Python's collector does not search its millions of objects for circles,
    which would take a third of the time. Raises NothingToAnalyse, EvidenceUnreadable, ToolMissing,
    UsageError.
    """
    gc.disable()
    try:
        return _load(given, progress)
    finally:
        gc.freeze()
        gc.enable()


def _load(given: Sequence[Path], progress: Progress) -> RunEvidence:
    ours = [path for path in given if path.is_dir() and (is_run(path) or is_dump(path))]
    if len(ours) > 1:
        raise UsageError(
            f"{str(ours[0])!r} and {str(ours[1])!r} are two runs or dumps: a verdict is on one job",
            "Explain one at a time; files of others can be named beside it.",
        )
    base = _ours(ours[0]) if ours else None
    rest = [path for path in given if path not in ours]
    if base is not None and not rest:
        return base
    foreign = ForeignFiles(base.dump.signatures if base and base.dump else None, progress)
    folders = [FolderFiles(path) for path in rest if path.is_dir()]
    foreign.read(_files(rest, folders))
    foreign.unknown += [Unknown(*left, decisive=True) for folder in folders for left in folder.unread]
    if base is None:
        _refuse_nothing(given, foreign)
    return foreign.evidence(base)


def named_files(given: Sequence[Path]) -> list[Path]:
    """The given files; patterns such as `logs/*.out` are expanded as a shell does. Raises UsageError for a file that
    does not exist."""
    found: list[Path] = []
    for path in given:
        matches = [path] if path == STDIN or path.exists() else [Path(name) for name in sorted(glob(str(path)))]  # noqa: PTH207
        if not matches:
            raise UsageError(f"there is no {str(path)!r}", "Name files, folders or a pattern; - reads standard input.")
        found += matches
    return found


def is_run(path: Path) -> bool:
    return os.access(path, os.X_OK) and ((path / "job.json").is_file() or (path / "attempts").is_dir())


def _ours(path: Path) -> RunEvidence:
    if not is_run(path):
        return load_dump_alone(path, str(path))
    run = RunDir(path.resolve())
    from distdbg.collect.runs.whole_run import load_whole_run  # with profiles and snapshots, which only runs have

    evidence = load_whole_run(run)
    if not (evidence.ranks or evidence.nodes or evidence.dump):
        raise EvidenceUnreadable(f"{str(path)!r} holds no record of any rank", "Is it a whole copy of the run?")
    more = unseen(evidence.dump) if evidence.dump else ()
    return replace(evidence, unknown=(*evidence.unknown, *more))


def _files(given: Sequence[Path], folders: Sequence[FolderFiles]) -> Iterator[tuple[Path, str]]:
    """Each file once, even if it is reached by several names, with the name that citations use."""
    seen: set[tuple[int, int]] = set()
    named = [(path, str(path)) for path in given if not path.is_dir()]
    for file, name in chain(named, *(folder.named() for folder in folders)):
        if file == STDIN:
            yield file, name
            continue
        try:
            found = file.stat()
        except OSError:
            yield file, name  # whoever reads it says why it cannot be read
            continue
        if (found.st_dev, found.st_ino) not in seen:
            seen.add((found.st_dev, found.st_ino))
            yield file, name


def _refuse_nothing(given: Sequence[Path], foreign: ForeignFiles) -> None:
    if foreign.useful:
        return
    names = ", ".join(repr(str(path)) for path in given[:4])
    if not foreign.unknown:
        lacks = "no rank is named there" if foreign.recognised else "there is no file"
        raise NothingToAnalyse(f"{names}: {lacks}", "Name a run, a dump, or the files that were collected.")
    first = foreign.unknown[0]
    refuse_unreadable(first.what)  # the name of a file, if it could not be opened
    if foreign.recognised:
        raise EvidenceUnreadable(
            f"nothing in {names} can be used; {first.what}: {first.because}", "Copy the files again, whole."
        )
    raise NothingToAnalyse(
        f"nothing in {names} is of a kind that distdbg knows; {first.what}: {first.because}",
        "It reads runs and dumps of its own, flight-recorder dumps, stacks of py-spy and gdb, and any text.",
    )
