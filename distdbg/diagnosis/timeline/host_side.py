"""What a rank does that waits for no other rank: its loader, a lock, a file, native code, a loop of its own."""

from __future__ import annotations

import re
from dataclasses import replace

from distdbg.diagnosis.timeline import outside
from distdbg.diagnosis.timeline.seen import CHILD, LOCKS, MANY, Seen
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.evidence.dump import GONE
from distdbg.evidence.frames import Activity
from distdbg.evidence.native_frames import NativeWait
from distdbg.evidence.stacks.classes import idle, since_birth
from distdbg.evidence.stacks.store_calls import HOLE
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.protocol.dump import SLEEP

ON_FILE = {"read", "write", "pread64", "pwrite64", "readv", "writev", "connect", "accept", "accept4", "sendto",
           "recvfrom", "sendmsg", "recvmsg", "fcntl", "flock", "fsync", "fdatasync", "openat"}  # fmt: skip
_SIGNALS = {"pause", "rt_sigtimedwait", "rt_sigsuspend"}
_LOCK_LINE = re.compile(r"\bacquire\(|^with\b|\.join\(|\.wait\(|\.result\(|\.get\(|\.put\(")
#: Waits with a C frame only; what calls them is Python's own: logging's handlers, the lock around an import.
_ACQUIRES = re.compile(r"(?:^|\.)_?acquire(?:_?lock)?$", re.IGNORECASE)
_HANDLES = re.compile(r"(?:^|\.)handle$")
#: of a store, that are named
_MOST_KEYS = 4


def standing(seen: Seen) -> Standing:
    """Of a rank whose main thread has a stack and is in no communication."""
    found = _loader(seen) or _store(seen) or outside.standing(seen) or _lock(seen) or _io(seen)
    found = found or _debugged_native(seen) or _own_code(seen)
    return outside.with_ended_children(seen, found)


def may_wait_for_device(seen: Seen, found: Standing) -> bool:
    """Whether a host that uses NCCL may stand so in `synchronize()`, in `.item()`, or in a copy to the host.

    These leave no frame of their own, release the GIL, and spin, sleep in a futex, or poll. Its main thread may also
    wait for a thread that does this.
    """
    if seen.holds_gil:
        return False
    match found.doing:
        case Doing.LOCK:
            return not found.sure or bool(seen.other_threads(seen.rank.pid))
        case Doing.IO:
            return seen.call in MANY and not seen.library
        case Doing.NATIVE:
            return seen.call not in _SIGNALS
        case Doing.PYTHON:
            return seen.call not in SLEEP and (seen.same_place or not seen.busy)
    return False


def device_call(seen: Seen, found: Standing) -> str:
    """Return the function in which the host waits for its device; "" if it does something else, or if no frame tells.

    Without native frames, only torch's own Python function for this tells.
    """
    if not may_wait_for_device(seen, found):
        return ""
    if seen.native_call is not None:
        wait, call = seen.native_call
        return call if wait in (NativeWait.DEVICE, NativeWait.COPY) else ""
    inner = seen.library[0] if seen.library and not seen.native_frames else None
    return inner.function if inner is not None and inner.activity is Activity.DEVICE_WAIT else ""


def _loader(seen: Seen) -> Standing | None:
    if seen.main is None or not any(f.activity is Activity.LOADER for f in seen.main.frames):
        return None
    if seen.users and _in_dataset(seen):
        words = (_lock(seen) or _io(seen) or _own_code(seen)).phrase
        return seen.stands(Doing.LOADER, f"waits for data in its own data set, which {words}")
    workers = [t for t in seen.rank.first.threads if t.pid != seen.rank.pid and t.main]
    own = [(t, frames) for t in workers if (frames := tuple(f for f in since_birth(t) if f.users))]
    busy = own or [(t, frames) for t in workers if (frames := _loads(t))]
    if not busy:
        return seen.stands(Doing.LOADER, "waits for its loader's workers" if workers else "waits for its loader")
    worker, frames = busy[0]
    many = sum(others[0] == frames[0] for _, others in busy) - 1
    call = seen.rank.first.children.get(worker.pid, GONE).syscall
    words = f"{_of_call(call, seen.dump.line(frames[0].file, frames[0].line))} at {place(frames[0])}"
    helpers = seen.other_threads(worker.pid) if call == "futex" else []
    if helpers:  # it waits for one of them
        frames = helpers[0].user_frames
        words = f"waits for a thread of its own at {place(frames[0])}"
    so = f"; so do {many} more" if many > 1 else "; so does another one" if many else ""
    found = seen.stands(Doing.LOADER, f"waits for its loader: worker pid {worker.pid} {words}{so}")
    return replace(found, worker=frames)


def _loads(worker: Thread) -> tuple[Frame, ...]:
    """Where one stands that loads by libraries alone; empty while it waits for what to load next."""
    frames = since_birth(worker)
    return frames if frames and frames[-1].activity is Activity.LOADER_WORKER and not idle(frames) else ()


def _in_dataset(seen: Seen) -> bool:
    """The user's innermost line runs below the loader, and not above it."""
    frames = seen.main.frames if seen.main else ()
    user = next(i for i, f in enumerate(frames) if f.users)
    return any(f.activity is Activity.LOADER for f in frames[user:])


def _lock(seen: Seen) -> Standing | None:
    locked = seen.idle or seen.call in ("futex", "semop", "semtimedop", "restart_syscall")
    if not locked or seen.busy:
        return None
    others = seen.other_threads(seen.rank.pid)
    only = others[0] if len(others) == 1 else None
    where = f" (thread {only.name or only.os_id} at {place(only.user_frames[0])})" if only is not None else ""
    if seen.locks:
        outer = next(f for f in reversed(seen.library) if f.activity in LOCKS)
        return seen.stands(Doing.LOCK, f"waits for another thread in {outer.function}{where}")
    if seen.library and _ACQUIRES.search(seen.library[0].function):
        outer = next((f for f in seen.library if not _ACQUIRES.search(f.function)), seen.library[0])
        which = "the lock of an import" if outer.activity is Activity.IMPORT else f"a lock in {outer.function}"
        return seen.stands(Doing.LOCK, f"waits for {which}{where}")
    if seen.library and seen.library[0].activity is Activity.LOGGING and _HANDLES.search(seen.library[0].function):
        # from Python 3.13 on it enters the lock itself
        return seen.stands(Doing.LOCK, f"waits for a lock in {seen.library[0].function}{where}")
    native_lock = not seen.native_waits.isdisjoint((NativeWait.LOCK, NativeWait.GIL))
    if native_lock or (not seen.native_frames and _LOCK_LINE.search(seen.line)):
        return seen.stands(Doing.LOCK, f"waits for a lock{where}", sure=native_lock)
    return None


def _store(seen: Seen) -> Standing | None:
    """Of torch.distributed: in C++, which no other rank's operation ends."""
    call = seen.store_call
    if call is None:
        return seen.stands(Doing.IO, "waits for a key of a store") if NativeWait.STORE in seen.native_waits else None
    keys = call.keys(seen.users[0].variables)
    many = "s" if len(keys) > 1 else ""
    known = not any(HOLE in key for key in keys)
    which = ", ".join(f'"{key}"' for key in keys[:_MOST_KEYS]) if known else f"`{call.text}`"
    what = f"{call.receiver}.{call.method} for the key{many} {which}"
    return replace(seen.stands(Doing.IO, f"waits in {what}", what), key=keys[0] if keys else "")


def _io(seen: Seen) -> Standing | None:
    words = None
    if seen.state == "D":
        wchan = seen.rank.last.process.wchan or "no more is known"
        words = f"waits in the kernel for a disk or a file system (state D, {wchan})"
    elif seen.call in CHILD:
        words = "waits for a child process to end"
    elif seen.call == "openat":
        words = "waits in open()"
    elif seen.call in ON_FILE:
        what = f"{seen.call}: {seen.target or 'a file'}{seen.named_holders}"
        words = f"waits in {what}"
        if seen.locked_by_ranks:
            return replace(seen.stands(Doing.FILE_LOCK, words, what), holders=seen.holders)
    elif seen.call in MANY and not seen.busy and seen.event_loop:
        words = "waits in its asyncio event loop, none of whose tasks can go on,"
    elif seen.call in MANY and not seen.busy and "sleep" not in seen.line:
        words = f"waits in {seen.call} for a socket, a pipe or a file"
    return seen.stands(Doing.IO, words) if words else None


def _debugged_native(seen: Seen) -> Standing | None:
    """A debugger's stack ends in native code; libraries that only pass a call on, such as libc, do not count, nor do
    Python's own modules, in which idle processes wait."""
    if not seen.unseen or not seen.native_frames or seen.main is None:
        return None
    wait, call = seen.native_call or (None, "")
    has_python_frames = any(not frame.native for frame in seen.main.frames)
    if wait is NativeWait.EVENT:
        if has_python_frames:
            return seen.stands(Doing.IO, f"waits in {call} for {wait.value}", sure=False)
    elif (called := next((f for f in seen.native_frames if not (f.passes_on or f.pythons_own)), None)) is not None:
        return seen.stands(Doing.NATIVE, f"is in native code of {called.library} ({called.function})", sure=False)
    if has_python_frames:
        return None
    because = f"its stack ends in {call or seen.native_frames[0].function}, and no Python frame shows what for"
    return replace(seen.stands(Doing.UNKNOWN, f"stands somewhere unknown: {because}", sure=False), because=because)


def _own_code(seen: Seen) -> Standing:
    if seen.busy:
        if seen.same_place and seen.library and seen.main and seen.main.holds_gil:
            return seen.stands(Doing.NATIVE, f"burns CPU inside {seen.library[0].function}, which never returns")
        return seen.stands(Doing.PYTHON, "burns CPU in Python code of its own")
    if seen.call in SLEEP or "sleep" in seen.line:
        keeps = seen.call in SLEEP and seen.keeps_gil
        words = "sleeps in a C function and keeps the GIL" if keeps else "sleeps"
        return seen.stands(Doing.NATIVE if keeps else Doing.PYTHON, words)
    gil = " and keeps the GIL" if seen.main and seen.main.holds_gil else ""
    if seen.call in _SIGNALS:
        return seen.stands(Doing.NATIVE, f"waits for a signal in a C function ({seen.call}){gil}")
    if seen.call or gil:
        what = f"blocks in a C function ({seen.call or 'no system call'}){gil}"
        return seen.stands(Doing.NATIVE, what, sure=seen.call != "futex")
    return seen.stands(Doing.PYTHON, "stands" if seen.idle else "runs", sure=False)


def place(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _of_call(call: str, line: str) -> str:
    if call in SLEEP or (call == "restart_syscall" and "sleep" in line):
        return "sleeps"
    if call == "futex":
        return "waits for a lock"
    return f"waits in {call}" if call else "stands"
