"""Events of the agents and of their parents on other hosts. All but the last five are also in events.jsonl."""

from __future__ import annotations

from distdbg.protocol.message import Event

#: Why a device that was there cannot be reached, as agents and probes write it.
OFF_THE_BUS, NEEDS_RESET = "the GPU has fallen off the bus", "the GPU needs a reset"
LOST = frozenset({OFF_THE_BUS, NEEDS_RESET})
#: Reasons for which an agent ends its ranks, as it writes them, that are no request of a person or a scheduler.
LAUNCHER_GONE, LAUNCHER_UNREACHABLE = "the launcher is gone", "the launcher's host cannot be reached"
PARENT_GONE = "the parent process of the agent is gone"
ANOTHER_NODE_FAILED, JOB_HUNG = "another node has failed", "the job hung"
_NOT_ASKED = (LAUNCHER_GONE, LAUNCHER_UNREACHABLE, PARENT_GONE, ANOTHER_NODE_FAILED, JOB_HUNG)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AgentError(
    Event, name="agent-error", by="agent", lost="an observation by the agent", because="it raised {error}"
):
    error: str
    traceback: str


class LogLost(Event, name="log-lost", by="agent", lost="{bytes} bytes of {stream}", because="{because}"):
    rank: int | None
    stream: str
    bytes: int | None
    because: str


class ClockSet(
    Event, name="clock-set", by="agent", lost="durations by the clock",
    because="it was set by {by_s} s while the job ran",
):  # fmt: skip
    by_s: float | None


class WriteRefused(Event, name="write-refused", by="agent", lost="{path}", because="{because}", only_if="at_end"):
    """The file system does not take a file of the run directory. It is tried again every second; with `at_end` it was
    refused to the end."""

    path: str
    because: str
    at_end: bool = False


class MetricsNotWritten(
    Event, name="metrics-not-written", by="agent", lost="the metrics file in {folder}", because="{because}"
):
    folder: str
    because: str


class MetricsNotServed(
    Event, name="metrics-not-served", by="agent", lost="the metrics on port {port}", because="{because}"
):
    port: int | None
    because: str


class MemorySnapshot(
    Event, name="memory-snapshot", by="agent", lost="a memory snapshot", because="it raised {error}", only_if="error"
):
    """The files of a rank's snapshot, or `because`: why there are none."""

    rank: int | None
    id: object
    files: Sequence[str] | None = None
    why: str = ""
    step: int | None = None
    missing: str = ""
    because: str = ""
    error: str = ""


class AgentStarted(Event, name="agent-started", by="agent"):
    pid: int | None
    host: str
    node_rank: int | None
    torchrun_pid: int | None
    argv: Sequence[str]


class NodeDir(Event, name="node-dir", by="agent"):
    """The node-local folder. `passed_over` are folders without room."""

    folder: str
    passed_over: object


class Cgroup(Event, name="cgroup", by="agent"):
    """Memory counters of the control group; `when` is before or after."""

    when: str
    oom_kill: int | None = None
    limit: int | None = None
    because: str = ""
    more: Mapping[str, object]


class AttemptStarted(Event, name="attempt-started", by="agent"):
    """`ranks`: the local rank by rank."""

    attempt: int = 1
    ranks: Mapping[int, int]


class RankStarted(Event, name="rank-started", by="agent"):
    rank: int
    pid: int | None
    attempt: int | None


class RankStopped(Event, name="rank-stopped", by="agent"):
    """A signal stopped it: SIGSTOP, Ctrl-Z."""

    rank: int


class RankContinued(Event, name="rank-continued", by="agent"):
    rank: int


class RankResumed(Event, name="made-to-go-on", by="agent"):
    """py-spy left it stopped, and the agent sent SIGCONT."""

    rank: int


class RankExited(Event, name="rank-exited", by="agent"):
    """The fields of exit.json."""

    rank: int
    local_rank: int | None
    attempt: int | None
    pid: int | None
    started: float | None
    ended: float | None
    exit_code: int | None
    unknown_because: str
    asked_to_stop: float | None
    step: int | None
    phase: str | None
    rss: int | None
    peak_rss: int | None
    phases: Mapping[str, object] | None
    step_times: Mapping[str, object] | None
    node_rank: int | None
    host: str


class SamplingAccess(Event, name="rungs", by="agent"):
    """What a dump can sample of the ranks of this node. `because`: why it cannot sample their stacks."""

    rank: int
    because: str = ""
    more: Mapping[str, object]


class Phases(Event, name="phases", by="agent"):
    """For each rank, thousandths of its time by phase, and milliseconds of a step."""

    ranks: Mapping[str, object]
    step_ms: Mapping[str, object] | None = None


class GpuXid(Event, name="gpu-xid", by="agent"):
    uuid: str
    xid: int
    ranks: Sequence[int]


class Signalled(Event, name="signal", by="agent"):
    """The agent sent a signal to the ranks that have a handler for it."""

    signal: str
    to: Sequence[int]
    without_handler: Sequence[int]


class StragglerSample(Event, name="late", by="agent"):
    """One stack sample of a straggler: it was in the phase for `for_ms`, the others take `usual_ms`."""

    rank: int
    phase: str
    for_ms: float | None
    usual_ms: float | None
    frames: Sequence[object]
    source: str


class Profile(Event, name="profile", by="agent"):
    """The files of a rank's profile, or `because`: why there is none."""

    rank: int | None
    id: object
    files: Sequence[str] | None = None
    wanted: Sequence[int] | None = None
    first: int | None = None
    last: int | None = None
    missing: str = ""
    because: str = ""


class Dumped(Event, name="dumped", by="agent"):
    """The agent has written its part of a dump. `ranks`: by rank COLLECTED, or why not (protocol/dump.py)."""

    folder: str
    seconds: float | None
    ranks: Mapping[str, object]
    because: str


class DeathDump(Event, name="death-dump", by="agent"):
    """A rank has failed: every node writes the recorders of its ranks into this folder."""

    folder: str
    attempt: int | None = None


class CutOff(Event, name="cut-off", by="agent"):
    """The launcher's host could not be reached for so long."""

    silent_s: float | None


class Stopping(Event, name="stopping", by="agent"):
    """The agent ends its ranks; `reason` is a signal's name or a sentence."""

    reason: str

    @property
    def is_cancel(self) -> bool:
        """Whether a person or a scheduler asked for the end of the job."""
        return not self.reason.startswith(_NOT_ASKED)


class Killing(Event, name="killing", by="agent"):
    reason: str


class Kernel(Event, name="kernel", by="agent"):
    """Messages of the kernel since the start. `because`: why there are none. `own_pids`: whether the kernel numbers the
    processes of this node as the agent does; in a container it does not."""

    messages: Sequence[object]
    because: str
    own_pids: bool = True


class TorchrunExited(Event, name="torchrun-exited", by="agent"):
    """`reported`: the exit codes by rank in torchrun's closing table."""

    exit_code: object
    reported: Mapping[int, int]


class AgentFinished(Event, name="agent-finished", by="agent"):
    exit_code: int


class Metrics(Event, name="metrics", by="agent"):
    ranks: Sequence[object]
    more: Mapping[str, object]


class RankSamples(Event, name="signs", by="agent"):
    """Rows of protocol/progress.py."""

    ranks: Sequence[object]


class Pong(Event, name="pong", by="agent"):
    """`asked` is the launcher's time in the ping."""

    asked: float | None = None


class AgentDied(Event, name="agent-died", by="keeper"):
    exit_code: int


class Here(Event, name="here", by="keeper"):
    """A node answers before its agent starts: its host and its addresses."""

    liveness_port: int
    more: Mapping[str, object]


class Place(Event, name="place", by="keeper"):
    port: int


class Reached(Event, name="reached", by="keeper"):
    why_not: Mapping[str, str | None]
