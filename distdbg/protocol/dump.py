"""The parts of a dump: what one look collects of a rank's process and of its heartbeat page."""

from __future__ import annotations

from distdbg.protocol.message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.protocol.page import Page


class DumpPart(Message):
    """An object in a node's part of a dump, or in the dump's manifest."""


class PageReading(DumpPart, name="page", by="agent"):
    """The counters of a heartbeat page; `quiet_s` is the age of the newest of them, `age_s` that of the page."""

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

    @classmethod
    def of(cls, page: Page, now_ns: int) -> PageReading:
        """`now_ns` is of the page's clock."""
        counters = {name: getattr(page, name) for name in cls.types if name not in {"quiet_s", "age_s"}}
        return cls(**counters, quiet_s=(now_ns - page.heard_ns) / 1e9, age_s=(now_ns - page.started_ns) / 1e9)


class ProcessState(DumpPart, name="process", by="agent"):
    """What /proc says of a process. `state` is one letter of proc(5), empty where the process is gone.

    `syscall` is the call that the main thread waits in, `target` the file, socket or child that it waits for.
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
