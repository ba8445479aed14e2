"""A dump: what was collected of every rank at one moment, before its end. Built by collect/runs/dump_files.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from distdbg.evidence.recorder.calls import KEPT, Call
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.nccl_ras import Communicator
from distdbg.evidence.stacks.threads import Thread, judged_thread
from distdbg.masking import mask_text
from distdbg.protocol.dump import Descendant, LockFile, NoStacks, PageReading, ProcessState

#: the state of a process that was not sampled: only its stack, or its recorder's dump, is known
NOT_LOOKED_AT = "?"
GONE = ProcessState()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a rank. `page` is None where it has no heartbeat page; `missing` says of each collector why it
    collected nothing."""

    t: float
    process: ProcessState = GONE
    page: PageReading | None = None
    #: of the rank's process and of its children; empty where there are none
    threads: tuple[Thread, ...] = ()
    threads_path: str = ""
    recorder: RecorderLog | None = None
    #: looks at child processes that have stacks, by pid
    children: Mapping[int, ProcessState] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    #: None if there are stacks, or if the reason in `missing` is of another kind
    no_stacks: NoStacks | None = None
    #: all processes below the rank, and the lock file that it polls for, where it waits for one of these
    below: tuple[Descendant, ...] = ()
    lock: LockFile | None = None
    #: what the process had used when this look was over; None for the last look, and in older dumps
    after: ProcessState | None = None
    #: how often the judged thread had left a CPU when this look, which pauses it, was over and it slept again; and that
    #: of the look before when this one began
    rested: int | None = None
    switched: int | None = None
    recorder_path: str = ""


@dataclass(frozen=True, slots=True)
class RankDump:
    """One rank in a dump; `looks` oldest first."""

    rank: int
    pid: int
    node_rank: int
    host: str
    looks: tuple[Look, ...]
    #: threads with frames of C code, where they were taken
    native: tuple[Thread, ...] = ()
    calls: tuple[Call, ...] = ()

    @property
    def first(self) -> Look:
        return self.looks[0] if self.looks else Look(0.0)

    @property
    def last(self) -> Look:
        return self.looks[-1] if self.looks else Look(0.0)

    def judged(self, look: Look) -> Thread | None:
        return judged_thread(look.threads, self.pid)

    @property
    def native_judged(self) -> Thread | None:
        return judged_thread(self.native, self.pid)

    @property
    def overrun(self) -> bool:
        """Older calls than these were made, and are not kept; or none is, as its node's memory had no room for them."""
        made = self.last.page.calls if self.last.page else None
        return len(self.calls) >= KEPT or (not self.calls and bool(made))

    @property
    def recorder(self) -> RecorderLog | None:
        """The newest that was had."""
        return next((look.recorder for look in reversed(self.looks) if look.recorder is not None), None)


@dataclass(frozen=True, eq=False)
class Dump:
    """One dump of one attempt. Compares and hashes by identity.

    `reason` is hang, asked, timeout or death. `quiet_s` is for how long no rank had moved when a launch's detector
    asked for it, None where somebody else did. `missing` names the ranks that nothing was collected of, and why.
    """

    path: str
    t: float = 0.0
    reason: str = ""
    quiet_s: float | None = None
    world_size: int | None = None
    ranks: Mapping[int, RankDump] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    #: `ranks` and `missing` are all ranks of the job; False if nothing that was read gives the job's size
    has_all_ranks: bool = True
    #: text of the scripts that stacks name, by the path that they had
    sources: Mapping[str, str] = field(default_factory=dict)
    signatures: Signatures = field(default_factory=Signatures)
    #: what NCCL's own RAS reported, the newest; and at the first look, where it was asked twice
    communicators: tuple[Communicator, ...] = ()
    communicators_before: tuple[Communicator, ...] = ()
    communicators_path: str = ""

    def runs_ahead(self, rank: int) -> bool:
        """Its host enqueues operations of NCCL, and no recorder says which: its stack does not say what it waits in."""
        had = self.ranks.get(rank)
        if had is None or had.recorder is not None:
            return False
        return had.first.process.nccl or had.pid in self.pids_of_nccl

    @cached_property
    def pids_of_nccl(self) -> frozenset[int]:
        return frozenset(rank.pid for one in self.communicators for rank in one.ranks)

    def line(self, file: str, number: int) -> str:
        """A line of a kept script, stripped; empty where it was not kept."""
        text = self.sources.get(file)
        lines = text.split("\n") if text else []
        return mask_text(lines[number - 1].strip()) if 0 < number <= len(lines) else ""
