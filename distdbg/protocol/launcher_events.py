"""Events of the launcher, in the run's own events.jsonl."""

from __future__ import annotations

from distdbg.protocol.message import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class HangWatchError(
    Event, name="hang-watch-error", by="launcher", lost="whether the job hung after the launcher's error",
    because="the detection of hangs raised {error}", decisive=True,
):  # fmt: skip
    error: str
    traceback: str


class StragglerWatchError(
    Event, name="late-watch-error", by="launcher", lost="stack samples of ranks that are late",
    because="the sampling raised {error}",
):  # fmt: skip
    error: str
    traceback: str


class ReportFailed(
    Event, name="report-failed", by="launcher", lost="the report at the end of the launch", because="it raised {error}"
):
    error: str
    traceback: str


class ExplainFailed(
    Event, name="explain-failed", by="launcher", lost="the report of a dump during the run",
    because="it raised {error}",
):  # fmt: skip
    error: str


class Launched(Event, name="launched", by="launcher"):
    nodes: int | None


class AttemptBegun(Event, name="attempt-begun", by="launcher"):
    """The events that follow are of this attempt, until the next one begins."""

    attempt: int


class NotStarted(Event, name="not-started", by="launcher"):
    because: str


class FileVisible(Event, name="shown", by="launcher"):
    """A file that the node wrote is visible on this host after so many seconds."""

    node_rank: int
    after_s: float


class StallSuspected(Event, name="stall-suspected", by="launcher"):
    attempt: int | None
    since: float | None
    quiet_s: float | None
    timeout_s: float | None


class Stalled(Event, name="stalled", by="launcher"):
    """No rank has made progress for `quiet_s` seconds, since epoch second `since`; `given` where a person has said how
    long that may last."""

    attempt: int | None
    since: float | None
    quiet_s: float | None
    timeout_s: float | None
    given: bool = False


class StartSlow(Event, name="start-slow", by="launcher"):
    """No rank has made progress since epoch second `since`, none has trained before, and some rank does nothing; or
    with `busy` all work."""

    attempt: int | None
    since: float | None
    quiet_s: float | None
    timeout_s: float | None
    busy: bool = False


class TimeoutNear(Event, name="timeout-near", by="launcher"):
    """A process group's timeout is about to end these ranks."""

    attempt: int | None
    since: float | None
    quiet_s: float | None
    timeout_s: float | None
    ranks: Sequence[int]


class Slow(Event, name="slow", by="launcher"):
    """No rank makes progress, and they work: bytes, cpu or data (diagnosis/timeline/liveness.py)."""

    attempt: int | None
    since: float | None
    quiet_s: float | None
    why: object


class WentOn(Event, name="went-on", by="launcher"):
    attempt: int | None
    since: float | None
    quiet_s: float | None


class MovingAgain(Event, name="moving-again", by="launcher"):
    attempt: int | None
    since: float | None
    quiet_s: float | None


class DumpTaken(Event, name="dump", by="launcher"):
    """A dump is over: each node has written its part, or did not in time."""

    folder: str
    reason: str
    seconds: float | None
    collected: int
    ranks: int
    because: object


class Explained(Event, name="explained", by="launcher"):
    attempt: int | None


class EndedHung(Event, name="ended-hung", by="launcher"):
    """`action`: kill or restart."""

    attempt: int | None
    action: str


class AgentSilent(Event, name="agent-silent", by="launcher"):
    """The agent does not answer, its host does."""

    node_rank: int
    host: str
    silent_s: float


class NodeSilent(Event, name="node-silent", by="launcher"):
    """A node is lost."""

    node_rank: int
    host: str
    silent_s: float | None
    because: str
    host_answers: bool | None


class NodeClock(Event, name="node-clock", by="launcher"):
    """The node's clock is ahead of the launcher's by at least `least_s` and at most `most_s` seconds, both of one sign:
    more than the round trip of a ping explains."""

    node_rank: int
    host: str
    least_s: float
    most_s: float


class AgentExited(Event, name="agent-exited", by="launcher"):
    node_rank: int
    exit_code: object
    host: str = ""
    because: str = ""


class SlurmMemory(Event, name="slurm-memory", by="launcher"):
    lines: Sequence[object]


class SlurmNodeFailure(Event, name="slurm-node-failure", by="launcher"):
    hosts: Sequence[object]


class Submitted(Event, name="submitted", by="launcher"):
    job_id: int | None


class Requeued(Event, name="requeued", by="launcher"):
    because: str
    without: Sequence[str]


class Cancelled(Event, name="cancelled", by="launcher"):
    """`by` is a signal's name or a sentence."""

    by: str


class TimeUp(Event, name="time-up", by="launcher"):
    """Slurm's time limit."""


class AgentsGone(Event, name="agents-gone", by="launcher"):
    """`seconds` from the launch on, measured by a clock that nobody sets."""

    exit_codes: Sequence[object]
    cancelled_by: str | None
    seconds: float | None = None


class Finished(Event, name="finished", by="launcher"):
    exit_code: int | None
    because: str = ""
