"""Read memory snapshots of any origin in a child process that cannot execute them: snapshot_child.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdbg.collect.files.child_limits import MOST_WALL_S, LostTime, why_it_ended, why_not_started
from distdbg.collect.files.folder_files import FolderFiles, nothing_read
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.evidence.logs.rank_names import rank_that_is_said
from distdbg.evidence.memory.answer import MemoryAnswer, from_plain
from distdbg.evidence.memory.levels import COMPARED_HOLDERS, MOST_HOLDERS
from distdbg.rundir import RunDir
from distdbg.rundir.files import RankFiles

#: A whole answer is below 2 MB a device; with all who hold anything a hundred, where each has the deepest stack.
_MOST_ANSWER = 256 << 20
#: Pickles of a rank's folder that are no snapshots: they are read only where they are named.
_OTHERS = {RankFiles(Path()).recorder.name, RankFiles(Path()).operations.name}
ENDINGS = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")


class SnapshotUnreadable(Exception):
    """Says why a file gave nothing."""


@dataclass(frozen=True)
class Snapshots:
    """What was read, in the order of ranks and devices, and (name, why not) for the rest."""

    answers: tuple[MemoryAnswer, ...]
    unread: tuple[tuple[str, str], ...] = ()


def read_snapshots(given: Sequence[Path], *, needed: bool = True, holders: int = MOST_HOLDERS) -> Snapshots:
    """Files, runs, folders; none is no error unless they are `needed`. `holders`: how many stacks are named.

    Raises NothingToAnalyse, and EvidenceUnreadable where none can be used.
    """
    answers: list[MemoryAnswer] = []
    unread: list[tuple[str, str]] = []
    files = list(dict.fromkeys(file for path in given for file in _files(path, unread)))
    lost = LostTime()
    for path, name in files:
        if lost.spent:
            unread.append((name, str(lost)))
            continue
        begun = time.monotonic()
        try:
            answers += read_snapshot_file(path, name, holders)
        except SnapshotUnreadable as error:
            lost.add(time.monotonic() - begun)
            unread.append((name, str(error)))
    if not files and not needed:
        return Snapshots(())
    if not files:
        names = ", ".join(repr(str(path)) for path in given[:4])
        raise NothingToAnalyse(
            f"no memory snapshot is in {names}",
            "torch.cuda.memory._dump_snapshot(PATH) writes one; files end in .pickle or .pickle.gz.",
        )
    if not answers:
        raise nothing_read(unread, "Name a complete file that torch.cuda.memory._dump_snapshot wrote.")
    answers.sort(key=lambda a: (a.rank is None, a.rank or 0, a.path, a.device))
    return Snapshots(tuple(answers), tuple(unread))


def read_one(path: Path, device: int | None) -> MemoryAnswer:
    """The one answer of a file, or of one of its devices, with all who hold anything: to be compared.

    Raises as read_snapshots, UsageError where it is not one.
    """
    answers = read_snapshots([path], holders=COMPARED_HOLDERS).answers
    chosen = [a for a in answers if device is None or a.device == device]
    if len(chosen) != 1:
        have = ", ".join(f"{a.path} device {a.device}" for a in answers[:4]) + (", …" if len(answers) > 4 else "")
        raise UsageError(
            f"{str(path)!r} holds {len(answers)}: {have}",
            "Name one file, and one device by --device; of a run, two ranks or steps: RUN --ranks 0,3.",
        )
    return chosen[0]


def read_snapshot_file(path: Path, name: str, holders: int = MOST_HOLDERS) -> list[MemoryAnswer]:
    """An answer for each device in it. Raises SnapshotUnreadable."""
    script = str(Path(__file__).with_name("snapshot_child.py"))
    command = [sys.executable, "-S", script, str(path.absolute()), str(holders)]
    nothing = subprocess.DEVNULL
    try:
        child = subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
    except OSError as error:  # a limit on processes
        raise SnapshotUnreadable(why_not_started(error)) from None
    try:
        out, _ = child.communicate(timeout=MOST_WALL_S)
    except subprocess.TimeoutExpired:
        raise SnapshotUnreadable(why_it_ended(None)) from None
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise SnapshotUnreadable(why_it_ended(child.returncode))
    try:
        answer = json.loads(out[:_MOST_ANSWER])
        if "because" in answer:
            raise SnapshotUnreadable(str(answer["because"]))
        found = [from_plain(device) for device in answer["devices"]]
    except (ValueError, KeyError, TypeError):
        raise SnapshotUnreadable("its reader answered nonsense") from None
    if not found:
        raise SnapshotUnreadable("no device did anything in it: it has no segment and no event")
    return [replace(one, path=name, rank=rank_that_is_said(name)) for one in found]


def _files(path: Path, unread: list[tuple[str, str]]) -> Iterator[tuple[Path, str]]:
    """(file, name for citations). Of a run, the newest attempt that has any; of a folder, what ends like one."""
    if not path.is_dir():
        yield path, str(path)
        return
    for attempt in reversed(RunDir(path).attempts()):
        found = [
            (file, file.relative_to(path).as_posix())
            for rank in attempt.ranks().values()
            for file in sorted(rank.memory.glob("*"))
            if file.name.endswith(ENDINGS)
        ]
        if found:
            yield from found
            return
    below = FolderFiles(path, ENDINGS)
    yield from (found for found in below.named() if found[0].name not in _OTHERS)
    unread += below.unread
