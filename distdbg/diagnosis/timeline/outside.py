"""What a rank waits for outside of its process, on its own host: a child process, a lock file, an extension's build."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from distdbg.diagnosis.timeline.life import busy_children
from distdbg.diagnosis.timeline.seen import CHILD, Seen
from distdbg.diagnosis.timeline.standing import Build, Doing, Standing
from distdbg.evidence.exit_status import how_it_ended
from distdbg.evidence.frames import Activity
from distdbg.protocol.dump import Descendant, LockFile
from distdbg.wording import counted

_MOST_NAMED = 4
_BETWEEN_PROCESSES = {Activity.CHILD, Activity.SHARED_LOCK}


def standing(seen: Seen) -> Standing | None:
    """None for a rank that waits for none of these."""
    return _extension(seen) or _lock_file(seen) or _child(seen)


def _extension(seen: Seen) -> Standing | None:
    """torch.utils.cpp_extension: one rank builds, and those that find its lock file wait until that is gone."""
    activities = {f.activity for f in seen.library}
    waits = {Activity.EXTENSION, Activity.LOCK_FILE} <= activities
    if not waits and Activity.EXTENSION_BUILD not in activities:
        return None
    frame = next((f for f in seen.library if f.activity is Activity.EXTENSION), None)
    name = frame.variables.get("name", "").strip('"') if frame is not None else ""
    extension = f"the C++ extension {name}" if name else "a C++ extension"
    if waits:
        found = seen.stands(Doing.BUILD, f"waits until another process has built {extension}")
        return replace(found, build=Build(name, lock=seen.rank.last.lock, waits=True))
    busy = busy_children(seen.rank)
    found = seen.stands(Doing.BUILD, f"builds {extension}: {_compilers(seen, busy)}")
    return replace(found, build=Build(name), busy=tuple(one.name for one in busy))


def _compilers(seen: Seen, busy: tuple[Descendant, ...]) -> str:
    child = _awaited(seen)
    many = counted(len(busy), "busy compiler")
    return f"waits for {child.name}, {many}" if child is not None else many


def _lock_file(seen: Seen) -> Standing | None:
    if not any(f.activity is Activity.LOCK_FILE for f in seen.library):
        return None
    lock = seen.rank.last.lock
    if lock is None:
        return seen.stands(Doing.IO, "waits for a lock file")
    what = f"the lock file {describe(lock)}{seen.named_holders}"
    if seen.locked_by_ranks:
        return replace(seen.stands(Doing.FILE_LOCK, f"waits for {what}", what), holders=seen.holders)
    return seen.stands(Doing.IO, f"waits for {what}")


def describe(lock: LockFile) -> str:
    """The path, the age and who holds it, in words."""
    if lock.age_s is None:
        return f"{lock.path}, which is gone"
    holders = f"held by {', '.join(lock.holders)}" if lock.holders else "which no process of its node holds"
    return f"{lock.path}, {_age(lock.age_s)} old, {holders}"


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _child(seen: Seen) -> Standing | None:
    """Only where the capture has seen the processes below it."""
    if not seen.rank.last.below or seen.busy:
        return None
    if seen.call not in CHILD and not any(f.activity is Activity.SUBPROCESS for f in seen.library):
        return None
    child, busy = _awaited(seen), busy_children(seen.rank)
    which = f"its child process {child.name} (pid {child.pid})" if child is not None else "a child process"
    found = seen.stands(Doing.IO, f"waits for {which} to end{_names(busy)}")
    return replace(found, busy=tuple(one.name for one in busy))


def with_ended_children(seen: Seen, found: Standing) -> Standing:
    """Of a rank that waits for a pipe, a socket or a lock, the phrase also names children that have ended and that it
    has not waited for. One that ended well counts only where the rank waits in a queue or pipe of multiprocessing.
    """
    if found.doing not in (Doing.IO, Doing.LOCK) or found.worker:
        return found
    between = not _BETWEEN_PROCESSES.isdisjoint(f.activity for f in seen.library)
    own = [one for one in seen.rank.last.below if one.parent == seen.rank.pid and one.exit_code is not None]
    told = [one for one in own if one.exit_code or between]
    ended = [f"{one.name} (pid {one.pid}): {how_it_ended(one.exit_code or 0)}" for one in told]
    if not ended:
        return found
    more = f" and {len(ended) - _MOST_NAMED} more" if len(ended) > _MOST_NAMED else ""
    words = f"child{'' if len(ended) == 1 else 'ren'} {', '.join(ended[:_MOST_NAMED])}{more}"
    return replace(found, phrase=f"{found.phrase}, after the end of its {words},")


def _awaited(seen: Seen) -> Descendant | None:
    """Its only child; of several nobody knows which one it waits for."""
    own = [one for one in seen.rank.last.below if one.parent == seen.rank.pid]
    return own[0] if len(own) == 1 else None


def _names(busy: tuple[Descendant, ...]) -> str:
    if not busy:
        return ""
    names = Counter(one.name for one in busy).most_common(_MOST_NAMED)
    told = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names)
    return f", with {len(busy)} busy process{'' if len(busy) == 1 else 'es'} ({told})"
