"""The files of a dump: its manifest, and each node's part with the looks at its ranks.

The manifest is written last and makes a folder a dump. For each rank it has COLLECTED, or `failed` or `not_tried` with
a reason. So does each look for a file that it lacks.
"""

from __future__ import annotations

from enum import Enum

from distdbg.protocol.message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from distdbg.protocol.page import Page


SCHEMA = "distdbg.dump/1"
COLLECTED = "collected"
#: System calls of `time.sleep`.
SLEEP = frozenset({"clock_nanosleep", "nanosleep"})
#: What an agent answers to a request while it takes another dump.
BUSY = "another dump is being taken on this node"

#: Reason of a dump of ranks that all work and have not begun to train: a line on the terminal, and no evidence.
BUSY_START = "busy"


class NoStacks(str, Enum):
    """Why py-spy gave no stacks of a process, if that is known: each has its own remedy."""

    NO_TOOL = "no-tool"  #: there is no py-spy that this machine can execute
    REFUSED = "refused"  #: the kernel does not let py-spy read the process
    NO_PYTHON = "no-python"  #: the process does not run Python
    FREE_THREADED = "free-threaded"  #: the process runs a build of Python that py-spy does not support


def failed(because: str, kind: NoStacks | None = None) -> dict[str, str]:
    """What a collector's entry contains instead of a file."""
    return {"failed": because} if kind is None else {"failed": because, "kind": kind.value}


def collected(files: Sequence[str]) -> dict[str, Any]:
    """Names of the files that hold it: a process may have several flight recorders."""
    return {"file": files[0]} | ({"beside": list(files[1:])} if files[1:] else {})


def not_tried(because: str) -> dict[str, str]:
    return {"not_tried": because}


class DumpPart(Message):
    """An object in a node's part of a dump, or in the dump's manifest."""


class PageReading(DumpPart, name="page", by="agent"):
    """The counters of a heartbeat page; `quiet_s` is the age of the newest of them, `age_s` that of the page.

    `forward_t`, `backward_t` and `optimizer_t` are when the newest of each began, in epoch seconds, where any has.
    """

    step: int | None = None
    phase: str = ""
    batches: int | None = None
    asks: int | None = None
    data_ends: int | None = None
    forwards: int | None = None
    backwards: int | None = None
    saves: int | None = None
    calls: int | None = None
    user_step: int | None = None
    #: the sum of all counters: a rank that moves changes it
    heard: int | None = None
    quiet_s: float | None = None
    age_s: float | None = None
    forward_t: float | None = None
    backward_t: float | None = None
    optimizer_t: float | None = None

    @classmethod
    def of(cls, page: Page, now_ns: int, epoch_ns: int) -> PageReading:
        """`now_ns` is of the page's clock, `epoch_ns` the same moment since the epoch."""
        began = {"forward_t": page.forward_ns, "backward_t": page.backward_ns, "optimizer_t": page.optimizer_ns}
        own = {"quiet_s", "age_s", *began}
        fields: dict[str, Any] = {name: getattr(page, name) for name in cls.types if name not in own}
        fields |= {name: (epoch_ns - now_ns + t) / 1e9 if t else None for name, t in began.items()}
        return cls(**fields, quiet_s=(now_ns - page.last_event_ns) / 1e9, age_s=(now_ns - page.started_ns) / 1e9)


class ProcessState(DumpPart, name="process", by="agent"):
    """What /proc says of a process. `state` is one letter of proc(5), empty where the process is gone.

    `syscall` is the call that the judged thread waits in, `target` the file, socket or child that it waits for, and
    `holders` the processes that have locked that file. `nccl`: it has a process group of NCCL (process_look.py says
    by what). `groups` is the largest number of process groups that its threads can belong to, None if no thread is
    one of NCCL's or gloo's.
    """

    t: float | None = None
    state: str = ""
    cpu_s: float | None = None
    threads: int | None = None
    rss: int | None = None
    wchan: str = ""
    read: int | None = None
    written: int | None = None
    syscall: str = ""
    target: str = ""
    holders: Sequence[int] = ()
    nccl: bool = False
    groups: int | None = None


class Descendant(DumpPart, name="descendant", by="agent"):
    """A process below a rank, but for a loader's workers. `cpu_s` is its own CPU time, without its children's;
    `exit_code` that of a process that has ended and that nobody has waited for yet, -N where signal N ended it."""

    pid: int
    parent: int | None
    name: str = ""
    state: str = ""
    cpu_s: float | None = None
    exit_code: int | None = None


class LockFile(DumpPart, name="lock-file", by="agent"):
    """A lock file that a rank polls for. `age_s` is None where it is gone or cannot be seen; `holders` are the
    processes of this node that have locked it, or have it open: `pid 12 (ninja)`. `locked_by` are those that have
    locked it."""

    path: str = ""
    age_s: float | None = None
    holders: Sequence[str]
    locked_by: Sequence[int] = ()


class LookPart(DumpPart, name="look", by="agent"):
    """`stacks`, `recorder` and `native` name a file (`file`, and more of them in `beside`), or say why there is none.
    `children` are processes by pid. Where the rank waits for a child or a lock file, `below` are all processes below
    it, and `lock` is the file; where it waits for another file or socket, `below` are its children that have ended.
    `after` is the process's use of CPU and files when this look was over. `rested` is how often the judged thread had
    left a CPU by then and after it had gone to sleep again, since a look pauses it; None if it did not go to sleep.
    `switched` of the next look is how often it had when that began."""

    t: float | None = None
    process: Mapping[str, object]
    page: Mapping[str, object] | None = None
    stacks: Mapping[str, object]
    recorder: Mapping[str, object]
    native: Mapping[str, object] | None = None
    children: Mapping[str, Mapping[str, object]]
    below: Sequence[Mapping[str, object]] = ()
    lock: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    rested: int | None = None
    switched: int | None = None


class RankPart(DumpPart, name="rank", by="agent"):
    """`looks` oldest first."""

    rank: int
    pid: int | None
    looks: Sequence[Mapping[str, object]]


class NodePart(DumpPart, name="node", by="agent"):
    """`sources` are the names of scripts by their path. `ras` is what NCCL's RAS reported at the first look,
    `ras_after` what it reported after the last, of a job that distdbg did not launch."""

    node_rank: int | None
    host: str
    ranks: Sequence[object]
    sources: Mapping[str, str]
    ras: Mapping[str, object] | None = None
    ras_after: Mapping[str, object] | None = None


class Manifest(DumpPart, name="manifest", by="launcher"):
    """`stalled` where a launch's detector requested the dump; `job` of a job that distdbg did not launch."""

    schema: str = SCHEMA
    t: float | None = None
    reason: str = ""
    by: str = ""
    world_size: int | None = None
    looks: int | None = None
    stalled: Mapping[str, object] | None = None
    seconds: float | None = None
    ranks: Mapping[str, object]
    job: Mapping[str, object] | None = None

    def fields(self) -> dict[str, Any]:
        """The fields with the schema, and `stalled` null where no stall was detected."""
        return {"schema": SCHEMA, "stalled": None, **super().fields()}


class CaptureTarget(DumpPart, name="target", by="agent"):
    """`stem` begins the names of the rank's files in the node's folder, None for a job that is not ours."""

    rank: int
    pid: int
    stem: str | None = None


class CaptureRequest(DumpPart, name="capture", by="agent"):
    """The input of launch/watch/capture.py: a request for a dump, and the ranks. The capture ends with `parent`."""

    folder: str
    looks: int = 2
    interval: float = 1.0
    within: float = 10.0
    native: int = 0
    values: bool = False
    node_rank: int
    host: str
    targets: Sequence[Mapping[str, object]]
    parent: int | None = None
