"""Where one rank stands: does it wait for other ranks, or for something on its own host, and at which line?

Decided from its main thread's stack, the state of its process and its flight recorder together, never from one of
them alone. Two looks tell looping from blocked. What is not seen is unknown, and says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, RankDump
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks import Frame, Thread


class Doing(Enum):
    """What a rank does. The first three wait for other ranks."""

    COLLECTIVE = "waits in a collective"
    TRANSFER = "waits for a send or recv"
    FORMING = "waits for a process group to be formed"
    ENDED = "has ended"
    STOPPED = "is stopped"
    RAISED = "has raised, and a thread keeps its process alive"
    LOADER = "waits for data"
    LOCK = "waits for a lock"
    IO = "waits for a file, a socket or a child"
    NATIVE = "is inside native code"
    PYTHON = "is in Python code of its own"
    UNKNOWN = "stands somewhere unknown"

    @property
    def waits_for_ranks(self) -> bool:
        return self in (Doing.COLLECTIVE, Doing.TRANSFER, Doing.FORMING)


@dataclass(frozen=True)
class Standing:
    """`frame` is the innermost line of the user's code, `phrase` what the rank does there, in words after "rank 3"."""

    rank: int
    doing: Doing
    phrase: str
    frame: Frame | None = None
    #: all lines of the user's code, innermost first
    frames: tuple[Frame, ...] = ()
    #: torch's function where it waits for ranks: all_reduce, recv, new_group, backward
    function: str = ""
    #: the rank at the other side that the stack names
    peer: int | None = None
    #: False where the stack alone could mean something else, too
    sure: bool = True
    #: why it is not known, for UNKNOWN
    because: str = ""
    #: frames of a loader's worker, where one of those is what is waited for
    worker: tuple[Frame, ...] = field(default=(), compare=False)


_FORMING = {"init_process_group", "new_group", "_new_group_with_tag", "_new_process_group_helper", "split_group",
            "new_subgroups", "_store_based_barrier"}  # fmt: skip
_LOADERS = ("torch/utils/data/dataloader.py", "torchdata/stateful_dataloader/stateful_dataloader.py")
_TRANSFERS = {"send", "isend", "recv", "irecv", "recv_object_list", "send_object_list"}
_LOCK_FILES = ("threading.py", "queue.py", "concurrent/futures/_base.py", "multiprocessing/synchronize.py",
               "multiprocessing/queues.py", "asyncio/base_events.py", "asyncio/runners.py")  # fmt: skip
_LOCK_LINE = re.compile(r"\bacquire\(|^with\b|\.join\(|\.wait\(|\.result\(|\.get\(|\.put\(")
_WAIT_LINE = re.compile(r"\.wait\(|\.result\(|\.synchronize\(|wait_tensor\(")
_DEVICE_LINE = re.compile(r"\.item\(|\.cpu\(|\.tolist\(|synchronize\(|\.numpy\(|\bfloat\(|\bint\(|\bprint\(")
_ON_FILE = {"read", "write", "pread64", "pwrite64", "readv", "writev", "connect", "accept", "accept4", "sendto",
            "recvfrom", "sendmsg", "recvmsg", "fcntl", "flock", "fsync", "fdatasync", "openat"}  # fmt: skip
_CHILD = {"wait4", "waitid"}
_MANY = {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"}
_SLEEP = {"clock_nanosleep", "nanosleep"}
_NATIVE_COLLECTIVE = re.compile(r"c10d::Work::|c10d::Reducer|gloo::|nccl|cudaStreamSync|cudaEventSync|cuStreamSync")
_NATIVE_LOCK = re.compile(r"PyThread_acquire_lock|take_gil|_PyMutex_Lock|lock_PyThread")
#: Of the time between two looks, so much on a CPU is work and not the wake-ups of a wait.
_BUSY = 0.4


def stand(rank: RankDump, record: RankRecord | None, dump: Dump) -> Standing:
    """Never raises; a rank of which nothing was had is UNKNOWN."""
    return _Judge(rank, record, dump).judge()


class _Judge:
    def __init__(self, rank: RankDump, record: RankRecord | None, dump: Dump) -> None:
        self.rank, self.record, self.dump = rank, record, dump
        look = next((look for look in rank.looks if look.threads), rank.first)
        self.main: Thread | None = rank.main(look)
        frames = self.main.frames if self.main else ()
        first_user = next((i for i, f in enumerate(frames) if f.users), len(frames))
        self.library, self.users = frames[:first_user], tuple(f for f in frames if f.users)
        self.state = str(rank.last.process.get("state", ""))
        self.call = str(rank.first.process.get("syscall") or rank.last.process.get("syscall") or "")
        self.target = str(rank.first.process.get("target") or "")
        #: a stack that somebody else took tells only whether the thread was on a CPU
        self.unseen = self.state == NOT_LOOKED_AT
        self.idle = self.unseen and self.main is not None and not self.main.active
        native = rank.native_main
        self.native = " ".join(f.function for f in native.frames if f.native) if native else ""
        recorder = rank.recorder
        self.unrecorded = recorder is None
        self.open = recorder is not None and any(g.first_open is not None for g in recorder.groups.values())
        self.device = recorder is not None and recorder.comm == "nccl"
        self.line = dump.line(self.users[0].file, self.users[0].line) if self.users else ""

    def judge(self) -> Standing:
        if not self.rank.last.process or self.state in ("Z", "X"):
            return self._is(Doing.ENDED, "has ended")
        if self.state in ("T", "t"):
            return self._is(Doing.STOPPED, "is stopped (state T: by SIGSTOP, a debugger or the batch system)")
        if self.main is None:
            return self._without_a_stack()
        judges = self._ended_script, self._communication, self._loader, self._lock, self._io
        return next((found for judge in judges if (found := judge()) is not None), None) or self._own_code()

    def _is(
        self, doing: Doing, phrase: str, function: str = "", *, peer: int | None = None, sure: bool = True
    ) -> Standing:
        frame = self.users[0] if self.users else None
        return Standing(self.rank.rank, doing, phrase, frame, self.users, function, peer, sure)

    def _without_a_stack(self) -> Standing:
        because = self.rank.last.missing.get("stacks", "no stack was taken")
        if self.open:
            return self._is(Doing.COLLECTIVE, "waits in a collective, by its flight recorder", sure=False)
        return Standing(self.rank.rank, Doing.UNKNOWN, f"stands somewhere unknown: {because}", because=because)

    def _ended_script(self) -> Standing | None:
        """The main thread has left the script, and waits for threads that are no daemons."""
        if not any(f.within("threading.py") and f.function == "_shutdown" for f in self.library):
            return None
        raised = self.record is not None and any(e.uncaught for e in self.record.exceptions)
        others = [t for t in self.rank.first.threads if t.pid == self.rank.pid and not t.main and t.user_frames]
        where = f" (thread {others[0].name or others[0].os_id} at {others[0].user_frames[0]})" if others else ""
        if raised:
            return self._is(Doing.RAISED, f"has ended its script by an exception, and a thread keeps it alive{where}")
        return self._is(Doing.LOCK, f"has ended its script and waits for a thread that does not end{where}")

    # -- for other ranks ------------------------------------------------------------------------------------

    def _communication(self) -> Standing | None:
        c10d = [f for f in self.library if f.within("torch/distributed/distributed_c10d.py")]
        names = {f.function for f in c10d}
        if names & _FORMING or any(f.within("torch/distributed/rendezvous.py") for f in self.library):
            function = "new_group" if names & {"new_group", "_new_group_with_tag"} else "init_process_group"
            return self._is(Doing.FORMING, f"waits in {function}", function)
        if names & _TRANSFERS:
            inner = next(f for f in c10d if f.function in _TRANSFERS)
            return self._transfer(inner.function, _peer(inner))
        if "batch_isend_irecv" in names:
            return self._transfer("batch_isend_irecv", None)
        if c10d:
            return self._collective(c10d[-1].function)
        return self._silent_communication()

    def _silent_communication(self) -> Standing | None:
        """Waits that leave no frame of torch.distributed: backward, Work.wait(), a synchronisation of the device."""
        if self.call in _ON_FILE | _CHILD | _SLEEP:
            return None
        if "SendWork" in self.native or "RecvWork" in self.native:
            return self._transfer("send" if "SendWork" in self.native else "recv", None)
        native = _NATIVE_COLLECTIVE.search(self.native) is not None
        if (native and (self.open or self.unrecorded)) or (self.open and self._torch_waits()):
            return self._collective(self._function())
        if self.unrecorded and self._function() != "wait" and self._torch_waits():
            return self._collective(self._function(), sure=False)
        return self._by_the_line() if self.device or not self.native else None

    def _by_the_line(self) -> Standing | None:
        """The source has to do where the C frames were not taken: `handle.wait()`, `loss.item()`; not where the
        wait is one of Python's own, as `event.wait()`.
        """
        if self._locks():
            return None
        waits = _WAIT_LINE.search(self.line) is not None
        if self.open and (waits or (self.device and _DEVICE_LINE.search(self.line))):
            return self._collective("wait", sure=False)
        if waits and self.call == "futex" and self._transferred_last():
            return self._transfer("wait", None)
        return None

    def _torch_waits(self) -> bool:
        """Without C frames: torch's own Python code was left for C++, which sleeps."""
        if (self.native and not self.device) or self._locks():
            return False
        torchs = any(f.within("torch/") or "/torch/" in f.file for f in self.library)
        return torchs and (self.call == "futex" or self.device or self.idle)

    def _transferred_last(self) -> bool:
        return bool(self.rank.calls) and self.rank.calls[-1].operation in _TRANSFERS

    def _function(self) -> str:
        if any(f.function == "_engine_run_backward" for f in self.library):
            return "backward"
        return "forward" if any("torch/nn/parallel" in f.file for f in self.library) else "wait"

    def _collective(self, function: str, *, sure: bool = True) -> Standing:
        return self._is(Doing.COLLECTIVE, f"waits in {function}", function, sure=sure)

    def _transfer(self, function: str, peer: int | None) -> Standing:
        return self._is(Doing.TRANSFER, f"waits in {function}", function, peer=peer)

    # -- for something on its own host ----------------------------------------------------------------------

    def _loader(self) -> Standing | None:
        if self.main is None or not any(f.within(name) for f in self.main.frames for name in _LOADERS):
            return None
        if self.users and self._in_dataset():
            return self._is(Doing.LOADER, f"waits for data in its own data set, which {self._host_words()}")
        workers = [t for t in self.rank.first.threads if t.pid != self.rank.pid and t.main]
        busy = [t for t in workers if t.user_frames]
        if not busy:
            words = "waits for its loader's workers" if workers else "waits for its loader"
            return self._is(Doing.LOADER, words)
        frame = busy[0].user_frames[0]
        many = f"; so do {len(busy) - 1} more" if len(busy) > 1 else ""
        call = str(self.rank.first.children.get(busy[0].pid, {}).get("syscall") or "")
        place = f"{frame.file.rpartition('/')[2]}:{frame.line}"
        words = f"waits for its loader: worker pid {busy[0].pid} {_of_call(call)} at {place}{many}"
        standing = self._is(Doing.LOADER, words)
        return Standing(**{**vars(standing), "worker": busy[0].user_frames})

    def _in_dataset(self) -> bool:
        """The user's innermost line runs below the loader, and not above it."""
        frames = self.main.frames if self.main else ()
        user = next(i for i, f in enumerate(frames) if f.users)
        return any(f.within(name) for f in frames[user:] for name in _LOADERS)

    def _host_words(self) -> str:
        other = self._lock() or self._io() or self._own_code()
        return other.phrase

    def _locks(self) -> bool:
        return any(f.within(name) for f in self.library for name in _LOCK_FILES)

    def _lock(self) -> Standing | None:
        locked = self.idle or self.call in ("futex", "semop", "semtimedop", "restart_syscall")
        if not locked or self._busy():
            return None
        if self._locks():
            outer = next(f for f in reversed(self.library) if any(f.within(name) for name in _LOCK_FILES))
            return self._is(Doing.LOCK, f"waits for another thread in {outer.function}")
        if _NATIVE_LOCK.search(self.native) or (not self.native and _LOCK_LINE.search(self.line)):
            return self._is(Doing.LOCK, "waits for a lock", sure=bool(self.native))
        return None

    def _io(self) -> Standing | None:
        if "TCPStore" in self.native:
            return self._is(Doing.IO, "waits in the rendezvous store for a key that nobody has set")
        words = None
        if self.state == "D":
            words = f"waits in the kernel for a disk or a file system (state D, {self._wchan()})"
        elif self.call in _CHILD:
            words = "waits for a child process to end"
        elif self.call == "openat":
            words = "waits in open()"
        elif self.call in _ON_FILE:
            words = f"waits in {self.call}: {self.target or 'a file'}"
        elif self.call in _MANY and not self._busy() and "sleep" not in self.line:
            words = f"waits in {self.call} for a socket, a pipe or a file"
        return self._is(Doing.IO, words) if words else None

    def _own_code(self) -> Standing:
        if self._busy():
            if self._same_place() and self.library and self.main and self.main.holds_gil:
                return self._is(Doing.NATIVE, f"burns CPU inside {self.library[0].function}, which never returns")
            return self._is(Doing.PYTHON, "burns CPU in a loop of its own")
        if self.call in _SLEEP or "sleep" in self.line:
            return self._is(Doing.PYTHON, "sleeps")
        gil = " and keeps the GIL" if self.main and self.main.holds_gil else ""
        if self.call or gil:
            what = f"blocks in a C function ({self.call or 'no system call'}){gil}"
            return self._is(Doing.NATIVE, what, sure=self.call != "futex")
        return self._is(Doing.PYTHON, "stands" if self.idle else "runs", sure=False)

    def _busy(self) -> bool:
        """Between the looks, or in both of them: on a crowded machine a loop gets little of a CPU."""
        if self.unseen:
            return self.main is not None and self.main.active
        first, last = self.rank.first, self.rank.last
        burnt = float(last.process.get("cpu_s") or 0) - float(first.process.get("cpu_s") or 0)
        if last.t <= first.t or self.call in _SLEEP:
            return False
        running = self.main is not None and self.main.active and not self.call
        return burnt >= _BUSY * (last.t - first.t) or (running and first.process.get("state") == self.state == "R")

    def _same_place(self) -> bool:
        last = self.rank.main(self.rank.last)
        return last is not None and self.main is not None and last.frames == self.main.frames

    def _wchan(self) -> str:
        return str(self.rank.last.process.get("wchan") or "no more is known")


def _peer(frame: Frame) -> int | None:
    """From the variables of send or recv: only where they were given as global ranks."""
    for name in ("src", "dst"):
        if (value := frame.variables.get(name, "")).isdecimal():
            return int(value)
    return None


def _of_call(call: str) -> str:
    if call in _SLEEP:
        return "sleeps"
    return f"waits in {call}" if call else "stands"
