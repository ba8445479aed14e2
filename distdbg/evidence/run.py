"""What is known about one run, as checks see it. Built by collect/runs/run_evidence.py from a run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distdbg.evidence.memory.growth import NodeMemory
from distdbg.protocol.agent_events import Stopping
from distdbg.protocol.launcher_events import Cancelled

if TYPE_CHECKING:  # every launch loads this for its first looks at the nodes, and reads none of these
    from collections.abc import Mapping

    from distdbg.evidence.dump import Dump
    from distdbg.evidence.host.course import Look
    from distdbg.evidence.host.gpus import GpuCourse
    from distdbg.evidence.host.preflight import Preflight
    from distdbg.evidence.logs.nccl import NcclLog
    from distdbg.evidence.memory.answer import MemoryAnswer
    from distdbg.evidence.memory.growth import MemorySeries
    from distdbg.evidence.trace.profile import RankProfile
    from distdbg.evidence.training.gradients import GradientSeries
    from distdbg.model import Citation, Unknown
    from distdbg.protocol.message import Lost


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
    """What a rank has told of a model that was made smaller; `whole` where nothing came of it."""

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


@dataclass(frozen=True)
class RankRecord:
    """One rank of one attempt.

    `exit_code` is negative for a signal (as subprocess has it), None while it runs or where it is not known
    (`exit_unknown_because` says why). `asked_to_stop` is when its agent or torchrun began to end it (epoch
    seconds), None where nobody did: a rank that dies of SIGTERM after that is a victim.
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
    #: when and how the script ended, as the worker side saw it: "returned", "SystemExit" or "exception"
    script_ended: float | None = None
    script_end_how: str = ""
    #: what it gave to sys.exit; None where it did not call it, or not with a number
    script_exit_code: int | None = None
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
    #: True once its default process group stood
    initialised: bool = False
    #: parts of distdbg that failed in it
    failures: tuple[Lost, ...] = ()
    #: the process groups that it has made, by torch's name: the global ranks in each
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: of the model's parameters, those that had no gradient when the agent asked; None where nobody could say
    without_gradient: WithoutGradient | None = None
    #: what was left out of its model, as it was asked to; None where nobody asked
    shrunk: Shrunk | None = None
    guards: tuple[GuardFact, ...] = ()
    #: what its memory did, step by step; None where `--memory` was not asked for
    memory: MemorySeries | None = None
    #: its gradients by layer; empty where `--watch gradients` was not asked for, or another rank has the same
    gradients: tuple[GradientSeries, ...] = ()


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
    #: memory counters of the ranks' cgroup before and after: {"oom_kill": [before, after], "limit": bytes …}
    cgroup: Mapping[str, Any] = field(default_factory=dict)
    #: kernel messages since the start, as the agent could read them: (text, epoch seconds or None)
    kernel: tuple[tuple[str, float | None], ...] = ()
    kernel_unknown_because: str = ""
    memory: NodeMemory = field(default_factory=NodeMemory)
    #: its ranks' figures over the whole run, by rank
    courses: Mapping[int, tuple[Look, ...]] = field(default_factory=dict)
    #: its GPUs as they were over the last hours, by index; empty where there are none
    gpus: tuple[GpuCourse, ...] = ()
    metrics_path: str = ""


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """The newest attempt's ranks and nodes, and what stands above them. Compares and hashes by identity."""

    job: Mapping[str, Any]
    attempt: int
    ranks: tuple[RankRecord, ...]
    nodes: tuple[NodeRecord, ...]
    #: the launcher's own events.jsonl, each with its line
    events: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    #: who asked for the end: a signal's name, or a sentence; None where nobody did
    cancelled_by: str | None = None
    unknown: tuple[Unknown, ...] = ()
    #: summaries of earlier attempts: attempt -> ranks that failed
    earlier_attempts: Mapping[int, tuple[RankRecord, ...]] = field(default_factory=dict)
    run_id: str = ""
    run_path: str = ""
    #: the newest dump of the attempt, None where none was taken
    dump: Dump | None = None
    #: what memory snapshots tell, one a device and file
    snapshots: tuple[MemoryAnswer, ...] = ()
    #: what the ranks' profiles tell, where they were profiled
    profiles: tuple[RankProfile, ...] = ()
    #: what the nodes said before anything was launched; None where nobody asked them
    preflight: Preflight | None = None

    @property
    def asked_to_end_at(self) -> float | None:
        """When somebody, or the end of another node, first asked any node to end; epoch seconds."""
        events = (*self.events, *(pair for node in self.nodes for pair in node.events))
        asked = (event.t for kind in (Cancelled, Stopping) for _, event in kind.among(events))
        return min((t for t in asked if t is not None), default=None)
