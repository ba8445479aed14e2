"""What runs beside a script inside its rank: the line to the agent, the heartbeat page, the hook bus."""

from __future__ import annotations

import _thread
import os

from distdbg.worker import exceptions, heartbeat
from distdbg.worker.bus import Bus
from distdbg.worker.importing import ImportWatch
from distdbg.worker.link import Link
from distdbg.worker.page import EXITING, PageWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType

#: The one of this process; None outside a run, where it is off, and in children of a rank.
current: Session | None = None


def start() -> Session | None:
    """None where there is no agent, where it is switched off, or where anything at all goes wrong."""
    global current  # noqa: PLW0603
    folder = os.environ.get("DISTDBG_NODE_DIR")
    if not folder or os.environ.get("DISTDBG_WORKER") == "off" or "RANK" not in os.environ:
        return None
    try:
        current = Session(folder, int(os.environ["RANK"]), int(os.environ.get("DISTDBG_ATTEMPT", "1")))
        os.register_at_fork(after_in_child=current.leave)
    except Exception:
        current = None
    return current


class Session:
    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self.page = PageWriter(f"{folder}/{rank:05d}.page", rank, attempt)
        self.link = Link(f"{folder}/agent.sock")
        self.link.send("hello", rank=rank, pid=os.getpid())
        imports = ImportWatch(self._not_hooked)
        self.bus = Bus(imports, self._dropped)
        heartbeat.subscribe(self.bus, self.page)
        # Before torch.distributed there is nobody to be asked about, and a second thread would make Python 3.12
        # warn where a script forks.
        imports.after("torch.distributed.distributed_c10d", self._listen)
        imports.install()

    def script_failed(self, error: BaseException, traceback: TracebackType | None) -> None:
        try:
            self.page.phase(EXITING)
            if isinstance(error, SystemExit):
                code = error.code if isinstance(error.code, int) or error.code is None else 1
                self.link.send("script-end", how="SystemExit", exit=code or 0)
                return
            self.link.send("exception", uncaught=True, **exceptions.describe(error, traceback))
            self.link.send("script-end", how="exception", exit=None)
        except Exception:
            return

    def script_returned(self) -> None:
        try:
            self.page.phase(EXITING)
            self.link.send("script-end", how="returned", exit=0)
        except Exception:
            return

    def leave(self) -> None:
        """In a forked child: it is not the rank, and says nothing."""
        global current  # noqa: PLW0603
        current = None
        self.bus.clear()
        self.page.close()
        self.link.close()

    def _dropped(self, event: str, subscriber: str, error: Exception) -> None:
        self.link.send("fact", kind="subscriber-dropped", event=event, subscriber=subscriber, error=repr(error))

    def _not_hooked(self, module: str, error: Exception) -> None:
        self.link.send("fact", kind="not-hooked", module=module, error=repr(error))

    def _listen(self, _module: ModuleType) -> None:
        # Below threading: the script's own count of its threads stays what it was.
        _thread.start_new_thread(self._answer, ())

    def _answer(self) -> None:
        rest = b""
        while data := self.link.wait():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if b'"exceptions"' in line:
                    try:
                        threads = exceptions.being_handled(_thread.get_ident())
                    except Exception:
                        threads = []
                    self.link.send("exceptions", threads=threads)
