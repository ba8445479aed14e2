"""The registry of all lines of events.jsonl: {"t": epoch seconds, "event": name} with the fields of the kind."""

from __future__ import annotations

from distdbg.protocol import agent_events, launcher_events
from distdbg.protocol.message import Event, Lost, Message, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["agent_events", "failure_of", "kind_of", "launcher_events"]


def kind_of(record: Mapping[str, Any]) -> type[Message] | None:
    """The kind of a line of events.jsonl; None for one that is not registered."""
    name = record.get("event")
    return Event.kinds.get(name) if isinstance(name, str) else None


def failure_of(record: Mapping[str, Any]) -> Lost | None:
    """What the report does not know because of this event; None where it reports no failure of distdbg."""
    return failure(kind_of(record), record)
