"""How long the run directory takes to show here what a node writes there: measured once a node, at its start.

An agent says that it has started over its wire and in its events.jsonl; the time from one to the other is what its
answers to `distdbg hang-dump` take as well. No clock of another host is in it, and nothing is written for it. NFS may
keep the old state of a folder for the mount's attribute time, of which /proc/self/mountinfo tells where it was set.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_whole
from distdbg.evidence import jsonl
from distdbg.launch.io.journal import Journal
from distdbg.protocol.launcher_events import FileVisible
from distdbg.rundir import RunDir

#: What a file system takes that nobody need speak of.
_PROMISED_S = 2.0
#: An agent is waited for so long at least: it, or its launcher, looks at the control file twice a second.
_LEAST_S = 4.0
_GIVEN_UP_S = 90.0
_MARK = b'"agent-started"'
_BEGINNING = 64 << 10
_MOST_EVENTS = 16 << 20
#: nfs(5): the mount shows acregmax and acdirmax only where they are not these.
_NFS_DEFAULT_S = 60.0


class WriteDelay:
    """`hear` gets what agents say, `tick` notes what has been seen since. One thread looks: a look may never return."""

    def __init__(self, run: RunDir, journal: Journal, say: Callable[[str], None]) -> None:
        self._run = run
        self._attempt = run.next_attempt
        self._journal = journal
        self._say = say
        self._asked: queue.SimpleQueue[tuple[int, Path, float]] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._known: set[int] = set()
        self._said = False

    def hear(self, node_rank: int, event: Mapping[str, Any]) -> None:
        if event.get("event") != "agent-started" or node_rank in self._known:
            return
        if not self._known:
            threading.Thread(target=self._look, name="showing", daemon=True).start()
        self._known.add(node_rank)
        files = self._run.attempt(self._attempt).node(node_rank, str(event.get("host")))
        self._asked.put((node_rank, files.events, time.monotonic()))

    def tick(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                node_rank, after_s = self._found.get_nowait()
                self._journal.note(FileVisible(node_rank=node_rank, after_s=round(after_s, 3)))
                if after_s > _PROMISED_S and not self._said:
                    self._said = True
                    self._say(self._sentence(node_rank, after_s))

    def _sentence(self, node_rank: int, after_s: float) -> str:
        kind, kept_s = file_system(self._run.path)
        kept = f"{kind}, which may show what was for {kept_s:g} s" if kept_s is not None else kind
        return (
            f"the run directory shows here after {after_s:.1f} s what node {node_rank} writes ({kept}): "
            "`distdbg hang-dump` waits for its answers accordingly"
        )

    def _look(self) -> None:
        waited: list[tuple[int, Path, float]] = [self._asked.get()]
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    waited.append(self._asked.get(block=not waited))
            waited = [item for item in waited if not self._seen(*item)]
            time.sleep(0.05)

    def _seen(self, node_rank: int, events: Path, since: float) -> bool:
        """Opened anew for each look (NFS). One that is given up has no figure, and nobody hears of it."""
        with contextlib.suppress(OSError), events.open("rb") as file:
            if _MARK in file.read(_BEGINNING):
                self._found.put((node_rank, time.monotonic() - since))
                return True
        return time.monotonic() - since > _GIVEN_UP_S


def patience(run: RunDir) -> float:
    """For how long an agent of this run may be silent before it does not answer: there and back, as was measured.

    Where nothing was, the mount's attribute time counts on NFS.
    """
    events, _ = jsonl.objects(read_whole(run.events, _MOST_EVENTS)[0] or "")
    measured = [event.after_s for _, event in FileVisible.among(events)]
    way = 2 * max(measured) if measured else file_system(run.path)[1] or 0.0
    return max(_LEAST_S, _PROMISED_S + way)


def file_system(path: Path, mounts: str | None = None) -> tuple[str, float | None]:
    """(its type, for how many seconds it may show what was: None where that is not NFS)."""
    try:
        text = Path("/proc/self/mountinfo").read_text(errors="replace") if mounts is None else mounts
    except OSError:
        return "its type is not known", None
    best = -1
    found: tuple[str, float | None] = ("its type is not known", None)
    for line in text.splitlines():
        here, _, there = (part.split() for part in line.partition(" - "))
        if len(here) < 5 or len(there) < 3:
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), here[4])
        if path.is_relative_to(point) and len(Path(point).parts) >= best:  # of two on one point the later is seen
            best = len(Path(point).parts)
            found = there[0], _attribute_time(there[0], there[2].split(","))
    return found


def _attribute_time(kind: str, options: list[str]) -> float | None:
    if kind not in ("nfs", "nfs4"):
        return None
    if "noac" in options:
        return 0.0
    told = dict(option.split("=", 1) for option in options if "=" in option)
    both = [told.get(name, "") for name in ("acregmax", "acdirmax")]
    return max(float(value) if value.isdecimal() else _NFS_DEFAULT_S for value in both)
