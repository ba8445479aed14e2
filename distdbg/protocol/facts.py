"""Messages of a rank to its agent: the lines of facts.jsonl, and those that the agent handles at once.

A line is {"rank": …, "op": "fact", "t": …, "kind": …} with the kind's fields; the kinds of `Op` stand as "op" itself.
"""

from __future__ import annotations

from distdbg.protocol.message import Fact, Lost, Message, RankMessage, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def kind_of(record: Mapping[str, Any]) -> type[Message] | None:
    """The kind of a line of facts.jsonl; None for one that is not registered."""
    op, kind = record.get("op"), record.get("kind")
    if isinstance(op, str) and op in RankMessage.kinds:
        return RankMessage.kinds[op]
    return Fact.kinds.get(kind) if isinstance(kind, str) else None


# -- failures of distdbg in a rank ------------------------------------------------------------------------------


class WorkerFailed(
    Fact, name="worker-failed", by="worker", lost="the steps, exceptions and groups",
    because="the worker side could not start: {error}", decisive=True,
):  # fmt: skip
    error: str


class NotKept(Fact, name="not-kept", by="worker", lost="{what}", because="its node had no room: {error}"):
    what: str
    error: str


class MayBeOrphaned(
    Fact, name="may-be-orphaned", by="worker", lost="the automatic end after the launcher's end",
    because="it could not be requested: {error}",
):  # fmt: skip
    error: str


class NotHooked(
    Fact, name="not-hooked", by="worker", lost="what distdbg observes through {module}",
    because="the hook could not be installed: {error}", decisive=True,
):  # fmt: skip
    module: str
    error: str


class SubscriberDropped(
    Fact, name="subscriber-dropped", by="worker", lost="what {subscriber} observes at the event {event}",
    because="it raised {error}",
):  # fmt: skip
    event: str
    subscriber: str
    error: str


class GuardFailed(Fact, name="guard-failed", by="worker", lost="guard {guard}", because="it raised {error}"):
    guard: str
    error: str


class WatchFailed(
    Fact, name="watch-failed", by="worker", lost="watch {watch}", because="it failed: {error}", decisive=True
):
    watch: str
    error: str


class CompileWatchFailed(
    Fact, name="compile-watch-failed", by="worker", lost="graph breaks and recompilations",
    because="the watch raised {error}", decisive=True,
):  # fmt: skip
    error: str


class ProfileFailed(Fact, name="profile-failed", by="worker", lost="the profile", because="it raised {error}"):
    error: str


class QuestionFailed(
    Fact, name="question-failed", by="worker", lost="an answer to the agent", because="it raised {error}"
):
    error: str


class NotShrunk(Fact, name="not-shrunk", by="worker", lost="the smaller model", because="it raised {error}"):
    error: str


# -- a rank's own state ----------------------------------------------------------------------------------------


class Init(Fact, name="init", by="worker"):
    """The default process group is initialised."""

    rank: int
    world_size: int
    backend: str


class Recorder(Fact, name="recorder", by="worker"):
    served: object


class Timeout(Fact, name="timeout", by="worker"):
    """The shortest timeout of any process group."""

    seconds: float


class GroupFact(Fact, name="group", by="worker"):
    """`ranks` is a list, or {first, step, count} where they are evenly spaced."""

    name: str
    desc: str
    ranks: object


class StepEnds(Fact, name="step-ends", by="worker"):
    """When the first steps ended, in ns since the epoch: of a rehearsal."""

    ends: Sequence[object]


class CollectiveModules(Fact, name="collective-modules", by="worker"):
    """When FSDP2 began and ended the collectives of a module, in ns since the epoch: of a rehearsal. `spans` are
    [begin, end, path of the module]."""

    spans: Sequence[object]


class ValueRead(Fact, name="value-read", by="worker"):
    """The first read of a value of the device in a line, of a rehearsal without values. `how` is the method of the
    tensor, `inside` the file below torch's folder that has read it for the line, empty where the line itself did."""

    file: str
    line: int
    how: str
    inside: str


class GuardReport(Fact, name="guard", by="worker"):
    """What a guard or a watch detected; `more` are its own fields."""

    guard: str
    mode: str
    step: int | None
    where: Sequence[object] | None
    more: Mapping[str, object]


class GradientLayers(Fact, name="gradient-layers", by="worker"):
    optimizer: int
    table: int
    more: Mapping[str, object]


class ShrunkFact(Fact, name="shrunk", by="worker"):
    kept: Mapping[str, object] | None = None
    loaded: bool | None = None
    skipped: Sequence[int] | None = None
    real: Sequence[int] | None = None
    unplaced: object = None


class MemoryHistory(
    Fact, name="memory-history", by="worker", lost="the history of allocations",
    because="it could not be recorded: {error}", only_if="error",
):  # fmt: skip
    recorded: bool
    entries: int | None = None
    observed: bool | None = None
    because: str = ""
    error: str = ""


class Cycles(Fact, name="cycles", by="worker"):
    freed: int
    bytes: int
    owners: Mapping[str, int]
    step: int


class Census(Fact, name="census", by="worker"):
    step: int
    epochs: int
    rss: int | None
    containers: int
    tensors: int
    tensor_bytes: int
    graphs: int
    growing: object
    seconds: float


class Trial(Fact, name="trial", by="replay"):
    """Guard trials run many scripts in one process: the next one begins."""

    number: int


class TrialRaised(Fact, name="trial-raised", by="replay"):
    error: str


class TrialDone(Fact, name="trial-done", by="replay"):
    pass


# -- ops --------------------------------------------------------------------------------------------------------


class Start(RankMessage, name="start", by="torchrun"):
    """torchrun is about to start its ranks."""

    envs: Mapping[str, object]


class Ends(RankMessage, name="ends", by="torchrun"):
    """torchrun is about to end its ranks. It waits for an answer, which comes once the deaths before it are seen to."""


class Hello(RankMessage, name="hello", by="worker"):
    rank: int
    pid: int


class Raised(RankMessage, name="exception", by="worker"):
    """An exception ended the script."""

    uncaught: bool = False
    type: str
    message: str
    traceback: str
    thread: str
    where: Sequence[object] | None


class Handled(RankMessage, name="exceptions", by="worker"):
    """The exception that each thread is handling. `id` is that of the question."""

    id: object
    threads: Sequence[object]


class ModelAnswer(RankMessage, name="model", by="worker"):
    """Parameters that require a gradient, and those without one. `because`: why that is not known."""

    id: object
    because: str = ""
    model: str = ""
    parameters: int | None = None
    without: int | None = None
    names: Sequence[object] | None = None
    reduces: bool | None = None


class ScriptEnd(RankMessage, name="script-end", by="worker"):
    """`how`: returned, SystemExit, os._exit or exception; `where`: the line that called sys.exit or os._exit."""

    how: str
    exit: int | None
    where: Sequence[object] | None = None


class MemoryLine(RankMessage, name="memory", by="worker"):
    more: Mapping[str, object]


class GradientLine(RankMessage, name="gradients", by="worker"):
    more: Mapping[str, object]


class ShapesFiles(RankMessage, name="shapes", by="worker"):
    files: Sequence[object]
    more: Mapping[str, object]


class OperationsFiles(RankMessage, name="operations", by="worker"):
    files: Sequence[object]
    more: Mapping[str, object]


class NonFiniteFiles(RankMessage, name="nonfinite", by="worker"):
    files: Sequence[object]
    more: Mapping[str, object]


class SnapshotFiles(RankMessage, name="snapshot", by="worker"):
    id: object
    more: Mapping[str, object]


class ProfileFiles(RankMessage, name="profile", by="worker"):
    id: object
    more: Mapping[str, object]


def failure_of(record: Mapping[str, Any]) -> Lost | None:
    """What the report does not know because of this fact; None where it reports no failure of distdbg."""
    return failure(kind_of(record), record)
