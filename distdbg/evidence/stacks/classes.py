"""Find where each rank is: the paths from its outermost frame to its innermost, for the merged call tree.

A rank has one path, its main thread's. A child process's path is added below it where the main thread waits for
children (loader workers, pools, subprocesses), and the other threads' where the main thread has ended or waits for
one. Ranks with the same paths are one class: what is kept of a class is its paths once, and which ranks are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.dump import Dump, Look, RankDump
from distdbg.evidence.frames import Activity, Origin
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.threads import Frame, Thread, judged_thread
from distdbg.model import grouped, unfold_ranks

#: A step of a path: a frame, or words for what is no frame ("child process", "thread watch_disk").
Step = Frame | str
Path = tuple[Step, ...]
Paths = tuple[Path, ...]

#: Longer stacks lose their middle: a recursion without end must not become a tree of its depth.
_MOST_STEPS = 160
_MOST_BRANCHES_OF_A_RANK = 8
_WAITS_FOR_CHILDREN = {Activity.LOADER, Activity.CHILD, Activity.SHARED_LOCK, Activity.SUBPROCESS}
_WAITS_FOR_THREADS = {Activity.LOCK, Activity.SHUTDOWN}
#: A child's own start, below what it was asked to do.
_CHILD_BEGINS = {Activity.LOADER_WORKER, Activity.CHILD_START}
#: between an idle child's loop and the wait for its next task
_QUEUES = {Activity.CHILD, Activity.SHARED_LOCK, Activity.LOCK, Activity.SELECT}
_NUMBERS = re.compile(r"\d+")


@dataclass
class StackClasses:
    """Stacks by what they are; `sets` has the ranks of each, as bits."""

    sets: dict[Paths, int] = field(default_factory=dict)
    _by_hash: dict[str, Paths] = field(default_factory=dict)

    def add(self, ranks: RankSet, paths: Paths) -> None:
        self.sets[paths] = self.sets.get(paths, 0) | ranks.bits

    def classes(self) -> list[tuple[Paths, RankSet]]:
        """Largest first; among equals the one with the lowest rank."""
        found = [(paths, RankSet(bits)) for paths, bits in self.sets.items()]
        return sorted(found, key=lambda item: (-len(item[1]), item[1].first))

    def part(self) -> dict[str, Any]:
        """What one node sends: each stack's text once, by its hash, and the ranks that have it."""
        from hashlib import blake2b  # OpenSSL takes 3.5 MiB, and only agents send parts

        parts: dict[str, Any] = {"stacks": {}, "ranks": {}}
        for paths, bits in self.sets.items():
            plain = [[step if isinstance(step, str) else _plain(step) for step in path] for path in paths]
            key = blake2b(repr(plain).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
            parts["stacks"][key] = plain
            parts["ranks"][key] = RankSet(bits).text()
        return parts

    def merge(self, part: Mapping[str, Any]) -> None:
        """Takes a node's part in; the text of a stack that is known already is not read again."""
        ranks, stacks = part.get("ranks"), part.get("stacks")
        if not isinstance(ranks, dict) or not isinstance(stacks, dict):
            return
        for key, text in ranks.items():
            try:
                members = RankSet.of(unfold_ranks(text))
            except (ValueError, AttributeError):  # no list of ranks: a foreign or damaged part
                continue
            if key not in self._by_hash:
                self._by_hash[key] = _paths(stacks.get(key))
            self.add(members, self._by_hash[key])


def all_paths(dump: Dump) -> dict[int, Paths]:
    """The paths of every rank of a dump, also of ranks without stacks."""
    found = {number: paths_of_rank(rank) for number, rank in dump.ranks.items()}
    for number, because in dump.missing.items():
        found[number] = ((_no_stack(because),),)
    return found


def classes_of(paths: Mapping[int, Paths]) -> StackClasses:
    same = grouped((own, rank) for rank, own in paths.items())
    found = StackClasses()
    for own, ranks in same.items():
        found.add(RankSet.of(ranks), own)
    return found


def paths_of_rank(rank: RankDump) -> Paths:
    """The paths of one rank, from its newest look that has stacks."""
    look = next((look for look in reversed(rank.looks) if look.threads), None)
    if look is None:
        return ((_no_stack(_why_none(rank.last)),),)
    return paths_of(look.threads, rank.pid)


def paths_of(threads: Iterable[Thread], pid: int) -> Paths:
    """The judged thread's path first; every other begins with it and names what branches off."""
    known = tuple(threads)
    main = judged_thread(known, pid)
    trunk = _path(main.frames) if main is not None else ("the main thread is gone",)
    found: dict[Path, None] = {trunk: None}
    if main is None or _ended(main):
        _add_threads(found, trunk, [t for t in known if t.pid == pid])
    elif main.frames and main.frames[0].activity in _WAITS_FOR_THREADS:
        _add_threads(found, trunk, [t for t in known if t.pid == pid and t.user_frames])
    elif any(frame.activity in _WAITS_FOR_CHILDREN for frame in main.frames):
        found |= dict.fromkeys((*trunk, *path) for path in _children(known, pid))
    return tuple(list(found)[: 1 + _MOST_BRANCHES_OF_A_RANK])


def _add_threads(found: dict[Path, None], trunk: Path, threads: Iterable[Thread]) -> None:
    for thread in threads:
        if not thread.main and not thread.ours and thread.frames:
            path = (*trunk, f"thread {thread.name or '?'}", *_thread_path(thread))
            found[path] = None


def _children(threads: tuple[Thread, ...], pid: int) -> list[Path]:
    """Children that are at work; those that wait for work only where all do."""
    paths = [_path(since_birth(t)) for t in threads if t.pid != pid and t.main and t.frames]
    kept = [path for path in paths if not idle(path)] or paths
    return [(_child_words(path), *path) for path in kept]


def _child_words(path: Path) -> str:
    loader = isinstance(path[0], Frame) and path[0].activity is Activity.LOADER_WORKER
    return ("loader worker" if loader else "child process") + (", waits for work" if idle(path) else "")


def since_birth(thread: Thread) -> tuple[Frame, ...]:
    """A forked child still has its parent's frames below its own: they are left out."""
    for begin in (Activity.LOADER_WORKER, Activity.CHILD_START):
        for number, frame in reversed(list(enumerate(thread.frames))):
            if frame.activity is begin:
                return thread.frames[: number + 1]
    return thread.frames


def idle(path: Path) -> bool:
    """A worker that waits for its next task: nothing but queues between it and its loop."""
    frames = [step for step in path if isinstance(step, Frame)]
    inner = [f for f in frames if f.activity not in _CHILD_BEGINS]
    return len(inner) < len(frames) and all(f.activity in _QUEUES or f.file.startswith("<") for f in inner)


def _ended(main: Thread) -> bool:
    """The interpreter waits for other threads: the script itself is over."""
    users = any(frame.users for frame in main.frames)
    return not users and any(f.activity is Activity.SHUTDOWN for f in main.frames)


def _thread_path(thread: Thread) -> Path:
    path = _path(thread.frames)
    begin = 0
    while begin < len(path) - 1 and isinstance(step := path[begin], Frame) and step.activity is Activity.THREAD_START:
        begin += 1
    return path[begin:]


def _path(frames: Iterable[Frame]) -> Path:
    """Outermost first, without our own frames."""
    steps: list[Step] = [f for f in frames if f.origin is not Origin.OURS]
    steps.reverse()
    if len(steps) > _MOST_STEPS:
        half = _MOST_STEPS // 2
        steps[half:-half] = [f"… {len(steps) - 2 * half} frames that are not shown"]
    return tuple(steps) or ("no Python frame",)


def _why_none(look: Look) -> str:
    state = {"T": "stopped", "Z": "a zombie", "D": "uninterruptible"}.get(look.process.state, "")
    if not look.process.state:
        state = "the process is gone"
    return "; ".join(filter(None, (state, look.missing.get("stacks", ""))))


def _no_stack(because: str) -> str:
    """Pids and times in a reason must not part what is one kind."""
    return f"no stack: {_NUMBERS.sub('N', because) or 'nothing says why'}"


def _plain(frame: Frame) -> list[str | int]:
    return [frame.function, frame.file, frame.line]


def _paths(value: object) -> Paths:
    items = value if isinstance(value, list) else []
    return tuple(tuple(_steps(path)) for path in items if isinstance(path, list)) or (
        ("no stack: its text is missing",),
    )


def _steps(path: list[Any]) -> Iterator[Step]:
    for step in path:
        match step:
            case str():
                yield step
            case [str() as function, str() as file, int() as line]:
                yield Frame(function, file, line)
