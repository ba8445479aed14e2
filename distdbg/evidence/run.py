"""All that is known about one run, as rules see it. Built by collect/runs/run_evidence.py from a run directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distdbg.evidence import jsonl
from distdbg.evidence.memory.growth import NodeMemory, Point
from distdbg.hidden_values import HiddenValues
from distdbg.protocol.agent_events import ClockSet, Stopping
from distdbg.protocol.launcher_events import AgentsGone, Cancelled, Finished

if TYPE_CHECKING:  # every launch loads this for its first looks at the nodes, and reads none of these
    from collections.abc import Mapping

    from distdbg.evidence.dump import Dump, RankDump
    from distdbg.evidence.host.gpus import GpuCourse, RankLook
    from distdbg.evidence.host.node_clocks import ClockOffset
    from distdbg.evidence.host.preflight import Preflight
    from distdbg.evidence.launcher import Launcher
    from distdbg.evidence.logs.nccl import NcclLog
    from distdbg.evidence.memory.answer import MemoryAnswer
    from distdbg.evidence.memory.growth import MemorySeries
    from distdbg.evidence.trace.profile import RankProfile
    from distdbg.evidence.training.gradients import GradientSeries
    from distdbg.model import Citation, Unknown
    from distdbg.protocol.message import Lost


#: The rank of a process of which a log or a stack is known, and nothing says the rank.
UNKNOWN_RANK = -1


@dataclass(frozen=True)
class DecisiveLine:
    """A line of a log on which the answer rests. `t` is epoch seconds, None where no line above it has a time."""

    path: str
    line: int
    rank: int | None
    host: str
    t: float | None
    text: str


@dataclass(frozen=True)
class HostClock:
    """A host's clock in its log against that of the first one, by `events` that both logged; None where these do not
    suffice. In seconds; `within` is the largest deviation of one event."""

    host: str
    ahead: float | None
    within: float | None
    events: int


@dataclass(frozen=True)
class LogsRead:
    """What was read of others' logs. `size` in bytes, unpacked; `first` and `last` in epoch seconds."""

    files: int
    lines: int
    size: int
    first: float | None
    last: float | None
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    launchers: tuple[str, ...]
    #: how files were packed or encoded, where not plainly
    forms: tuple[str, ...]
    #: errors of processes whose rank is not known
    unattributed: int
    decisive: tuple[DecisiveLine, ...]
    #: of several hosts, where their lines have times
    clocks: tuple[HostClock, ...] = ()
    #: a collective timed out, and the lines of one rank's watchdog, or of none, were read
    one_watchdog: bool = False


@dataclass(frozen=True)
class ExceptionFact:
    """An exception that the worker side saw in one rank.

    `uncaught` is True where it ended the script; False where it was still being handled (a `finally`, an `except`)
    when a sibling died, or a dump was taken, and the agent asked. `t` is epoch seconds. `line` is that of facts.jsonl
    (1-based).
    """

    rank: int
    type: str
    message: str
    traceback: str
    t: float
    uncaught: bool
    thread: str = "MainThread"
    #: the innermost frame in the user's own code: (file, line, function)
    where: tuple[str, int, str] | None = None
    citation: Citation | None = None


@dataclass(frozen=True)
class WithoutGradient:
    """`count` of `parameters` that want a gradient had none; `names` are some of them.

    `reduces` is True where DDP had prepared the last forward for a reduction in its backward, as it does outside of
    no_sync(); None where the model is no DDP's.
    """

    count: int
    parameters: int
    names: tuple[str, ...] = ()
    reduces: bool | None = None


@dataclass(frozen=True)
class Shrunk:
    """What a rank reported of a model that was made smaller; `whole` where the model stayed as it was."""

    words: str
    whole: bool


@dataclass(frozen=True)
class GuardFact:
    """What a guard in a rank has noticed. `fields` are the guard's own; `where` is the user's line."""

    rank: int
    guard: str
    fields: Mapping[str, Any]
    t: float | None = None
    step: int | None = None
    where: tuple[str, int, str] | None = None
    citation: Citation | None = None


@dataclass(frozen=True)
class StepTimes:
    """The median and the quartiles of windows of steps, the newest of the run, in milliseconds a step."""

    windows: int
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank of one attempt.

    `exit_code` is negative for a signal (as subprocess has it), None while it runs or where it is not known
    (`exit_unknown_because` says why). `asked_to_stop` is when its agent or torchrun began to end it (epoch
    seconds), None where neither did: a rank that SIGTERM ends after that is a victim.
    """

    rank: int
    local_rank: int
    node_rank: int
    host: str
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    exit_unknown_because: str = ""
    asked_to_stop: float | None = None
    #: from the heartbeat page at the last look
    step: int | None = None
    phase: str | None = None
    #: True where the worker side saw the script's end (returned, SystemExit) before the interpreter's own end
    script_finished: bool = False
    #: when and how the script ended, as the worker side saw it: "returned", "SystemExit", "os._exit" or "exception"
    script_ended: float | None = None
    script_end_how: str = ""
    #: what it gave to sys.exit or os._exit, 0 where it returned; None where an exception ended it
    script_exit_code: int | None = None
    #: the user's line that called sys.exit or os._exit: (file, line, function)
    script_end_where: tuple[str, int, str] | None = None
    exceptions: tuple[ExceptionFact, ...] = ()
    #: what its main thread was handling when the newest dump was taken
    handling: ExceptionFact | None = None
    #: torchelastic's error file, where @record wrote one
    error_file: Mapping[str, Any] | None = None
    #: the last 64 KiB of each stream, decoded with replacement, and the paths to cite
    stdout_tail: str = ""
    stderr_tail: str = ""
    stdout_path: str = ""
    stderr_path: str = ""
    #: 1-based number of the first line of stderr_tail within the file; 0 where the file is too long to count
    stderr_first_line: int = 1
    exit_path: str = ""
    #: the line of a log that says how it ended
    exit_citation: Citation | None = None
    #: True where all that is known of it are lines of logs that something else than distdbg wrote
    from_log: bool = False
    #: True where NCCL's watchdog ended the process: its abort is no failure of its own
    ended_by_watchdog: bool = False
    #: what is known of a process whose rank is not: `host node7`
    place: str = ""
    rss_bytes: int | None = None
    #: warnings of NCCL from its own file, and that file
    nccl_tail: str = ""
    nccl_path: str = ""
    #: what NCCL's own log says; None where it wrote nothing
    nccl: NcclLog | None = None
    #: thousandths of its time in each phase, as its agent saw it, and of how many windows of steps it is the median
    phases: Mapping[str, int] = field(default_factory=dict)
    #: milliseconds of its steps, as its agent saw them; None where it saw none
    step_times: StepTimes | None = None
    #: the most resident memory that its agent saw
    peak_rss_bytes: int | None = None
    #: True where its process had a worker side: no launcher of other processes has one
    has_worker: bool = False
    #: True once its default process group was created
    initialised: bool = False
    #: parts of distdbg that failed in it
    failures: tuple[Lost, ...] = ()
    #: the process groups that it has made, by torch's name: the global ranks in each
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: of the model's parameters, those that had no gradient when the agent asked; None where that is not known
    without_gradient: WithoutGradient | None = None
    #: what was left out of its model, as it was asked to; None where it was not asked
    shrunk: Shrunk | None = None
    #: (file, line) where its script read values of simulated devices, which compute none
    value_reads: frozenset[tuple[str, int]] = frozenset()
    guards: tuple[GuardFact, ...] = ()
    #: what its memory did, step by step; None where `--memory` was not asked for
    memory: MemorySeries | None = None
    #: its gradients by layer; empty where `--watch gradients` was not asked for, or another rank has the same
    gradients: tuple[GradientSeries, ...] = ()

    @property
    def left_by_itself(self) -> bool:
        """Its script had ended before its agent or torchrun began to end what was left of the process."""
        asked = self.asked_to_stop
        return self.script_ended is not None and (asked is None or self.script_ended < asked)

    @property
    def own_exit_code(self) -> int | None:
        """The exit code; what its script gave, where torchrun collected the process before anybody could read it, or
        where the process was ended from outside while it still cleaned up. None for a rank that runs."""
        code, given = self.exit_code, self.script_exit_code
        if code is None:
            return given if self.ended is not None else None
        ended_later = code < 0 and self.asked_to_stop is not None and self.left_by_itself
        return given if ended_later and given is not None else code


@dataclass(frozen=True)
class NodeRecord:
    """One node of one attempt. `events` are its agent's, each with its 1-based line in `events_path`."""

    node_rank: int
    host: str
    events: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    events_path: str = ""
    torchrun_tail: str = ""
    torchrun_path: str = ""
    torchrun_first_line: int = 1
    torchrun_exit_code: int | None = None
    #: what an agent wrote that ended by an error of its own; empty if it did not
    agent_log: str = ""
    #: memory counters of the ranks' cgroup before and after: {"oom_kill": [before, after], "limit": bytes …}
    cgroup: Mapping[str, Any] = field(default_factory=dict)
    #: kernel messages since the start, as the agent could read them: (text, epoch seconds or None)
    kernel: tuple[tuple[str, float | None], ...] = ()
    kernel_unknown_because: str = ""
    #: whether the pids in those messages are pids of the ranks' own pid namespace
    kernel_has_own_pids: bool = True
    memory: NodeMemory = field(default_factory=NodeMemory)
    #: its ranks' figures over the whole run, by rank
    courses: Mapping[int, tuple[RankLook, ...]] = field(default_factory=dict)
    #: its GPUs as they were over the last hours, by index; empty where there are none
    gpus: tuple[GpuCourse, ...] = ()
    metrics_path: str = ""


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """The newest attempt's ranks and nodes, and what is known of the whole run. Compares and hashes by identity."""

    job: Mapping[str, Any]
    attempt: int
    ranks: tuple[RankRecord, ...]
    nodes: tuple[NodeRecord, ...]
    #: the launcher's own events.jsonl, each with its line
    events: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    #: who asked for the end: a signal's name, or a sentence; None where the job was not asked to end
    cancelled_by: str | None = None
    unknown: tuple[Unknown, ...] = ()
    #: the process that launched the attempt; None if no launcher of ours did
    launcher: Launcher | None = None
    #: True if a later attempt was started
    is_superseded: bool = False
    earlier_attempts: tuple[RunEvidence, ...] = ()
    run_id: str = ""
    run_path: str = ""
    #: the newest dump of the attempt, None where none was taken
    dump: Dump | None = None
    #: what memory snapshots tell, one a device and file
    snapshots: tuple[MemoryAnswer, ...] = ()
    #: what the ranks' profiles tell, where they were profiled
    profiles: tuple[RankProfile, ...] = ()
    #: what the nodes reported before the launch; None without a preflight
    preflight: Preflight | None = None
    #: processes of which a log has errors, and whose rank no line says; their rank is UNKNOWN_RANK
    unattributed: tuple[RankRecord, ...] = ()
    #: processes of which somebody else took stacks, and whose rank no file's name says; their rank is UNKNOWN_RANK
    unnamed_processes: tuple[RankDump, ...] = ()
    #: what was read of others' logs; None where there were none
    logs: LogsRead | None = None
    #: nodes whose clocks differ from the launcher's: the times of their records are by the launcher's clock
    clocks: tuple[ClockOffset, ...] = ()
    #: masks the secrets of the job
    hidden: HiddenValues = field(default_factory=HiddenValues)

    @property
    def world_size(self) -> int | None:
        """The number of ranks that job.json states, None if it states none that a job can have."""
        topology = self.job.get("topology")
        return jsonl.world_size(topology) if isinstance(topology, dict) else None

    @property
    def has_all_ranks(self) -> bool:
        """Whether `ranks` are known to be all ranks of the job: logs of some ranks do not give its size."""
        complete = self.dump is None or self.dump.has_all_ranks
        return complete and len(self.ranks) >= (self.world_size or 0)

    def has(self, part: str) -> bool:
        """Whether a field is neither None nor empty: one of this class (`dump`), of some rank (`rank.guards`) or of
        some node (`node.gpus`)."""
        owner, _, name = part.rpartition(".")
        owners: tuple[object, ...] = {"": (self,), "rank": (*self.ranks, *self.unattributed), "node": self.nodes}[owner]
        return any(getattr(one, name) for one in owners)

    def node_of(self, rank: RankRecord) -> NodeRecord | None:
        return next((node for node in self.nodes if node.node_rank == rank.node_rank), None)

    def memory_points(self, rank: RankRecord) -> Sequence[Point]:
        """The rank's own lines where `--memory` was asked for, else its agent's, one in ten seconds."""
        if rank.memory is not None and rank.memory.points:
            return rank.memory.points
        node = self.node_of(rank)
        return node.memory.points.get(rank.rank, ()) if node else ()

    def hosts_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """The hosts of these ranks, each once, as far as they are known."""
        wanted = set(ranks)
        return tuple(dict.fromkeys(r.host for r in self.ranks if r.rank in wanted and r.host))

    @property
    def end_is_recorded(self) -> bool:
        """Whether the launcher, or a later attempt, has recorded that this attempt is over."""
        return self.is_superseded or AgentsGone.is_in(self.events) or Finished.is_in(self.events)

    @property
    def is_over(self) -> bool | None:
        """Whether the attempt has ended; None if that cannot be known from here."""
        if self.end_is_recorded:
            return True
        if self.launcher is None:
            return False
        return None if self.launcher.alive is None else not self.launcher.alive

    @property
    def clock_was_set(self) -> bool:
        """Whether the clock of a node was set while the job ran, so that times before and after do not compare."""
        return any(ClockSet.is_in(node.events) for node in self.nodes)

    @property
    def asked_to_end_at(self) -> float | None:
        """When a person, or the end of another node, first asked any node to end; epoch seconds."""
        events = (*self.events, *(pair for node in self.nodes for pair in node.events))
        asked = (event.t for kind in (Cancelled, Stopping) for _, event in kind.among(events))
        return min((t for t in asked if t is not None), default=None)
