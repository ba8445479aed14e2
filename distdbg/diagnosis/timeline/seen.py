"""What a dump shows of one rank, as the questions that its judge asks: which lines, which system call, is it busy?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import takewhile

from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, Look, RankDump
from distdbg.evidence.frames import Activity
from distdbg.evidence.native_frames import NativeWait, native_wait_of, outermost_wait
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks.store_calls import StoreCall, waiting_call
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.model import fold_ranks
from distdbg.protocol.dump import SLEEP

#: Python's own means of waiting for another thread, process or task
LOCKS = {Activity.LOCK, Activity.SHARED_LOCK, Activity.SHUTDOWN, Activity.EVENT_LOOP}
#: waits for a child process to end
CHILD = {"wait4", "waitid"}
MANY = {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"}
#: A line that waits for what its device is at, to have a value of it or to give it one of ordinary memory.
READS_DEVICE = re.compile(
    r"\.item\(|\.cpu\(|\.cuda\(|\.to\(|\.tolist\(|synchronize\(|\.numpy\(|\bfloat\(|\bint\(|\bprint\("
)
#: Of the time between two looks, so much on a CPU is work and not the wake-ups of a wait.
_BUSY = 0.4


class Seen:
    """`main` is the thread that is judged, mostly the main one. `library` are its frames below the user's innermost
    line, `users` the user's own; both innermost first."""

    def __init__(self, rank: RankDump, record: RankRecord | None, dump: Dump) -> None:
        self.rank, self.record, self.dump = rank, record, dump
        look = next((look for look in rank.looks if look.threads), rank.first)
        self.main: Thread | None = rank.judged(look)
        self.threads = look.threads
        frames = self.main.frames if self.main else ()
        self.library, self.users = parts(frames)
        self.state = rank.last.process.state
        self.call = rank.first.process.syscall or rank.last.process.syscall
        self.target = rank.first.process.target
        self.holders = _ranks_among(_locked_by(rank.first), rank, dump)
        #: a stack that somebody else took tells only whether the thread was on a CPU
        self.unseen = self.state == NOT_LOOKED_AT
        self.idle = self.unseen and self.main is not None and not self.main.active
        self.native_frames = _native_frames(rank, self.main)
        #: what its native frames wait for; empty if none is known
        self.native_waits = {wait for f in self.native_frames if (wait := native_wait_of(f.function, f.library))}
        recorder = rank.recorder
        self.unrecorded = recorder is None
        #: no recorder says what its device waits in
        self.runs_ahead = dump.runs_ahead(rank.rank)
        #: it uses NCCL, and its recorder has no operation: one may be open on its device all the same
        self.records_nothing = (
            recorder is not None and not recorder.entries and (rank.first.process.nccl or rank.pid in dump.pids_of_nccl)
        )
        judged = [self.main if other.threads is look.threads else rank.judged(other) for other in rank.looks]
        mains = [main for main in judged if main is not None]
        self.holds_gil = any(main.holds_gil for main in mains)
        #: in every look, which what Python itself waits in does not
        self.keeps_gil = bool(mains) and all(main.holds_gil for main in mains)
        opened = [g for g in recorder.groups.values() if g.first_open is not None] if recorder is not None else []
        #: sends or receives alone are open, on its device: gloo's recorder has none
        self.transfers = (
            not opened and recorder is not None and any(not transfer.done for transfer in recorder.transfers)
        )
        self.open = bool(opened) or self.transfers
        #: an operation is open on its device, which the host need not wait for
        self.device = self.transfers or any(group.on_device for group in opened)
        self.line = dump.line(self.users[0].file, self.users[0].line) if self.users else ""

    def stands(
        self, doing: Doing, phrase: str, function: str = "", *, peer: int | None = None, sure: bool = True
    ) -> Standing:
        frame = self.users[0] if self.users else None
        return Standing(self.rank.rank, doing, phrase, frame, self.users, function, peer, sure)

    @cached_property
    def store_call(self) -> StoreCall | None:
        """The call of a store of torch.distributed that the judged thread waits in, by the text of its line."""
        if self.main is None or not self.users or self.main.frames[:1] != self.users[:1]:
            return None
        frame = self.users[0]
        call = waiting_call(self.dump.sources.get(frame.file, ""), frame.line)
        if call is None or not call.is_of_a_store(frame.variables):
            return None
        sure = call.receiver in frame.variables or NativeWait.STORE in self.native_waits
        return call if sure or self.call in MANY | {"restart_syscall"} else None

    @property
    def native_call(self) -> tuple[NativeWait, str] | None:
        """What the outermost known native function waits for, and its name."""
        return outermost_wait((f.function, f.library) for f in self.native_frames)

    @property
    def locks(self) -> bool:
        """It waits in Python's own means between threads."""
        return any(f.activity in LOCKS for f in self.library)

    @property
    def named_holders(self) -> str:
        """` (rank 3)`; empty where no rank has locked the file that it wants to lock."""
        one = len(self.holders) == 1
        return f"{' (rank' if one else ' (ranks'} {fold_ranks(self.holders)})" if self.holders else ""

    @property
    def locked_by_ranks(self) -> bool:
        """The file that it wants to lock is locked by ranks of this job alone, in the first look and the last."""
        first, last = self.rank.first, self.rank.last
        same = first.process.target == last.process.target and _locked_by(first) == _locked_by(last)
        return bool(self.holders) and same and len(self.holders) == len(set(_locked_by(first)))

    @property
    def event_loop(self) -> bool:
        return any(f.activity is Activity.EVENT_LOOP for f in self.library)

    @property
    def stopped(self) -> bool:
        """In each look: another dump of the same process, as its launcher takes one, stops it for milliseconds."""
        return all(look.process.state in ("T", "t") for look in self.rank.looks)

    @property
    def busy(self) -> bool:
        """Between the looks, or in both of them: on a crowded machine a loop gets little of a CPU."""
        if self.unseen:
            return self.main is not None and self.main.active
        first, last = self.rank.first, self.rank.last
        burnt = (last.process.cpu_s or 0.0) - (first.process.cpu_s or 0.0)
        if last.t <= first.t or self.call in SLEEP:
            return False
        running = self.main is not None and self.main.active and not self.call
        return burnt >= _BUSY * (last.t - first.t) or (running and first.process.state == self.state == "R")

    @property
    def same_place(self) -> bool:
        """In the first look and the last."""
        last = self.rank.judged(self.rank.last)
        return last is not None and self.main is not None and last.frames == self.main.frames

    def at(self, thread: Thread) -> Seen:
        """The same rank by another thread, of which /proc was not asked."""
        seen = copy(self)
        seen.__dict__.pop("store_call", None)
        seen.main, seen.call, seen.target, seen.holders = thread, "", "", ()
        seen.native_frames, seen.native_waits = (), set()
        seen.library, seen.users = parts(thread.frames)
        seen.idle, seen.holds_gil, seen.keeps_gil = not thread.active, thread.holds_gil, False
        seen.line = self.dump.line(seen.users[0].file, seen.users[0].line) if seen.users else ""
        return seen

    def other_threads(self, pid: int) -> list[Thread]:
        """Of a process, those that run the user's code beside the judged one: an idle thread of a pool does not."""
        others = (t for t in self.threads if t.pid == pid and not t.main and t != self.main and not t.ours)
        return [t for t in others if t.user_frames]


def _native_frames(rank: RankDump, main: Thread | None) -> tuple[Frame, ...]:
    """The frames of C code that the judged thread is in. A debugger's stack has them among the others, the innermost
    first; libraries without symbols, which have addresses for names, are left out."""
    sampled = rank.native_judged
    frames = sampled.frames if sampled is not None else ()
    if sampled is None and main is not None:
        frames = tuple(takewhile(lambda frame: frame.native, main.frames))
    native = tuple(frame for frame in frames if frame.native)
    return native if any(not frame.function.startswith("0x") for frame in native) else ()


def _locked_by(look: Look) -> tuple[int, ...]:
    """The processes that have locked the file that a rank waits for in a system call, or polls for."""
    return tuple(look.process.holders or (look.lock.locked_by if look.lock is not None else ()))


def _ranks_among(pids: Sequence[int], rank: RankDump, dump: Dump) -> tuple[int, ...]:
    """The ranks of the same node that these processes are."""
    if not pids:  # nearly always: no search among thousands of ranks
        return ()
    return tuple(r for r, had in sorted(dump.ranks.items()) if had.node_rank == rank.node_rank and had.pid in pids)


def parts(frames: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """(library frames below the user's innermost line, all lines of the user's)."""
    first = next((i for i, f in enumerate(frames) if f.users), len(frames))
    return frames[:first], tuple(f for f in frames if f.users)
