"""Where one rank stands: does it wait for other ranks, or for something on its own host, and at which line?

judge.py decides it; this is what it decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from distdbg.evidence.stacks.threads import Frame
from distdbg.protocol.dump import LockFile


class Doing(Enum):
    """What a rank does. The first five wait for other ranks."""

    COLLECTIVE = "waits in a collective"
    TRANSFER = "waits for a send or recv"
    FORMING = "waits for a process group to be formed"
    KEY = "waits for a key of a store that another rank sets"
    FILE_LOCK = "waits for a file that other ranks have locked"
    DEVICE = "has enqueued an operation that its device does not finish"
    ENDED = "has ended"
    STOPPED = "is stopped"
    RAISED = "has raised, and a thread keeps its process alive"
    LOADER = "waits for data"
    LOCK = "waits for a lock"
    BUILD = "builds a C++ extension, or waits for the rank that does"
    IO = "waits for a file, a socket or a child"
    NATIVE = "is inside native code"
    PYTHON = "is in Python code of its own"
    UNKNOWN = "stands somewhere unknown"

    @property
    def waits_for_ranks(self) -> bool:
        return self in (Doing.COLLECTIVE, Doing.TRANSFER, Doing.FORMING, Doing.KEY, Doing.FILE_LOCK)


_PASSES = (Doing.PYTHON, Doing.NATIVE, Doing.IO, Doing.LOADER, Doing.LOCK, Doing.BUILD)


@dataclass(frozen=True)
class Build:
    """The build of a C++ extension by torch.utils.cpp_extension. `waits`: another process builds it, or should, as its
    lock file says; `lock` is None where that file is not known."""

    extension: str
    lock: LockFile | None = None
    waits: bool = False


@dataclass(frozen=True)
class Standing:
    """`frame` is the innermost line of the user's code, `phrase` what the rank does there, in words after "rank 3"."""

    rank: int
    doing: Doing
    phrase: str
    frame: Frame | None = None
    #: all lines of the user's code, innermost first
    frames: tuple[Frame, ...] = ()
    #: what it waits in where it waits for ranks: torch's function (all_reduce, recv, new_group, backward), or the
    #: system call and the file
    function: str = ""
    #: the rank at the other side that the stack names
    peer: int | None = None
    #: False where the stack alone could mean something else, too
    sure: bool = True
    #: why it is not known, for UNKNOWN
    because: str = ""
    #: the thread that waits for ranks, where the main thread only waits for that one
    thread: str = ""
    #: frames of a loader's worker, where one of those is what is waited for
    worker: tuple[Frame, ...] = field(default=(), compare=False)
    #: who makes the process group that it waits for, itself among them; empty where that is not known
    members: tuple[int, ...] = ()
    #: how many ranks torch expects in the process group that it waits for; None if that is not known
    group_size: int | None = None
    #: the ranks that have locked the file that it waits for; empty where another process has, too
    holders: tuple[int, ...] = ()
    build: Build | None = None
    #: where it meets the other ranks of a group that is formed: `node1:29500`
    meets_at: str = ""
    #: of a store of torch.distributed, which it waits for, the first; HOLE in it stands for what is not known
    key: str = ""
    #: names of its child processes that compute, where it waits for one
    busy: tuple[str, ...] = ()
    #: the function in which the host waits for its device; empty for none
    native_call: str = ""

    @property
    def passes(self) -> bool:
        """A healthy rank does this for a while, too."""
        return self.doing in _PASSES or (self.doing is Doing.DEVICE and bool(self.native_call))
