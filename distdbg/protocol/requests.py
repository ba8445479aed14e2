"""Requests: of the launcher and other commands to the agents, and of an agent to a rank.

A request is an object of the run's control file, or of the launcher's connection: {"request": name} with its fields. A
question is an object of a rank's connection: {"op": name} with its fields; the rank's answer repeats its id.
"""

from __future__ import annotations

from distdbg.protocol.message import Message, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: Of a request that goes to all nodes but one.
_EXCEPT = "except_node"


class Request(Message):
    """`record(except_node)` is what is sent."""

    key = "request"

    def record(self, except_node: int | None = None) -> dict[str, Any]:
        """The request for all nodes, or for all but one."""
        found = {"request": self.spec.name, **self.fields()}
        return found if except_node is None else {**found, _EXCEPT: except_node}


def read_request(record: Mapping[str, Any], node_rank: int) -> Request | None:
    """None where it is for other nodes, is not registered or lacks a number."""
    kind = Request.kinds.get(str(record.get("request")))
    if kind is None or record.get(_EXCEPT) == node_rank:
        return None
    try:
        return kind.from_record(record)  # type: ignore[return-value]
    except Unreadable:
        return None


# -- the end of the job -----------------------------------------------------------------------------------------


class Cancel(Request, name="cancel", by="command"):
    """`by` is a sentence."""

    by: str


class Stop(Request, name="stop", by="launcher"):
    """`most_grace`: seconds between SIGTERM and SIGKILL at most, where the agent's own option says more."""

    reason: str
    most_grace: float | None = None


class Kill(Request, name="kill", by="launcher"):
    by: str


class SendSignal(Request, name="signal", by="launcher"):
    """Send a signal to the ranks that have a handler for it."""

    signal: int


# -- evidence ---------------------------------------------------------------------------------------------------


class TakeDump(Request, name="dump", by="launcher"):
    """`looks` samples, `interval` seconds apart, `within` seconds; stacks with frames of C code of `native` ranks.

    `values`: the local variables, too.
    """

    folder: str
    looks: int = 2
    interval: float = 1.0
    within: float = 10.0
    native: int = 0
    values: bool = False


class TakeDeathDump(Request, name="last-look", by="launcher"):
    """A rank of another node has failed."""

    folder: str


class AskExceptions(Request, name="exceptions", by="launcher"):
    """What are the ranks handling? One of another node has failed."""


class TakeSnapshot(Request, name="memory-snapshot", by="command"):
    """`ranks` None: of all."""

    id: object
    ranks: Sequence[int] | None = None


class TakeProfile(Request, name="profile", by="command"):
    id: object
    ranks: Sequence[int] | None = None
    first: int
    steps: int


class SampleStraggler(Request, name="late-look", by="launcher"):
    """The others take `usual_ms` for this phase."""

    rank: int
    phase: str
    usual_ms: float


# -- an agent on another host -----------------------------------------------------------------------------------


class Listen(Request, name="host", by="launcher"):
    """The node `to` listens on the first free port from this one on."""

    port: int
    to: int


class Reach(Request, name="reach", by="launcher"):
    """Which of these addresses can be reached?"""

    addresses: Sequence[str]
    port: int


class StartAgent(Request, name="start", by="launcher"):
    """`own` are the agent's arguments. `endpoints` are addresses and ports of the launcher's host."""

    own: Sequence[str]
    torchrun: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    unset: Sequence[str]
    address: str
    endpoints: Sequence[Sequence[object]]


class Ping(Request, name="ping", by="launcher"):
    """`t` is the launcher's time, which the answer repeats."""

    t: float | None = None


# -- from the agent to a rank -----------------------------------------------------------------------------------


class Question(Message):
    """What an agent asks of a rank (worker/session.py)."""

    key = "op"

    def record(self) -> dict[str, Any]:
        return {"op": self.spec.name, **self.fields()}


class WhichExceptions(Question, name="exceptions", by="agent"):
    """What is each thread handling? `id` is death or dump."""

    id: str


class WhichModel(Question, name="model", by="agent"):
    """Which parameters have no gradient?"""

    id: str


class WhichStacks(Question, name="stacks", by="agent"):
    """A file answers (worker/threads.py)."""


class WriteSnapshot(Question, name="memory-snapshot", by="agent"):
    id: object


class WriteProfile(Question, name="profile", by="agent"):
    id: object
    first: int
    steps: int
