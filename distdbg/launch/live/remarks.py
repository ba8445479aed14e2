"""Compose remarks for the terminal while ranks run: about single events, and about mistakes of the script."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistdbgError
from distdbg.model import fold_ranks
from distdbg.plain_text import whole_number

if TYPE_CHECKING:
    from distdbg.launch.live.state import RunState

_STOPPED = {
    "rank-stopped": "rank {rank} was stopped (SIGSTOP, Ctrl-Z): the others will wait for it until it gets SIGCONT",
    "rank-continued": "rank {rank} goes on",
}
_CLOSED = "py-spy may not sample the ranks, so a rank that hangs must write its stack itself: "
_REFUSED = "{what} cannot be written: {because}. The job goes on without it"
_MOST = 3
#: Seconds that torchrun may take to start the ranks again, or to end.
_BLOCKED_S = 15.0


class Remarks:
    """`on` takes every event of every agent. `run_path` is the run directory, as it is shown."""

    def __init__(self, run_path: str) -> None:
        self._run_path = run_path
        self._refusals: set[str] = set()
        self._disk_was_named = False

    def on(self, event: Mapping[str, Any]) -> str:
        """A sentence, or nothing. One that is true of all nodes is shown once."""
        name, because = str(event.get("event")), str(event.get("because") or "")
        if name in _STOPPED:
            return _STOPPED[name].format(rank=event.get("rank"))
        if name == "rungs" and because and because not in self._refusals:
            self._refusals.add(because)
            return _CLOSED + because
        if name == "write-refused":
            return self.on_disk((str(event.get("path")), because))
        if name == "log-lost":
            return self.on_disk((f"the {event.get('stream')} of rank {event.get('rank')} in {self._run_path}", because))
        return ""

    def on_disk(self, refusal: tuple[str, str] | None) -> str:
        """A sentence about the first file that could not be written, and why; the report lists all that is missing."""
        if refusal is None or self._disk_was_named:
            return ""
        self._disk_was_named = True
        return _REFUSED.format(what=refusal[0], because=refusal[1])


class BlockedRestart:
    """Notices that torchrun waits for a restart that a finished node does not join."""

    def __init__(self, max_restarts: str) -> None:
        self._may_restart = (whole_number(max_restarts) or 0) > 0
        self._since: float | None = None

    def look(self, state: RunState) -> str:
        """Return a sentence once it has lasted, or nothing. Called in each turn while agents live."""
        nodes: dict[int, set[str]] = {}
        for rank in state.ranks.values():
            nodes.setdefault(rank.node_rank, set()).add(rank.state)
        finished = [node for node, states in nodes.items() if states == {"finished"}]
        failed = [node for node, states in nodes.items() if "failed" in states]
        ended = all(states <= {"finished", "failed", "stopped"} for states in nodes.values())
        if not (self._may_restart and ended and finished and failed):
            self._since = None
            return ""
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since < _BLOCKED_S:
            return ""
        self._may_restart = False
        return (f"torchrun on node {fold_ranks(failed)} waits to start its ranks again, but node "
                f"{fold_ranks(finished)} has finished and does not join: torchrun gives up after 300 s")  # fmt: skip


class LintInPassing:
    """Nothing waits for it. `modes` are the guards': one that is off is not spoken of here either."""

    def __init__(self, script: str | None, modes: Mapping[str, str]) -> None:
        self._said: list[str] = []
        if script is not None and modes.get("all") != "off":
            off = [name for name, mode in modes.items() if mode == "off"]
            threading.Thread(target=self._lint, args=(script, off), name="lint", daemon=True).start()

    def remarks(self) -> list[str]:
        """Sentences that have not been given yet."""
        found, self._said = self._said, []
        return found

    def _lint(self, script: str, off: list[str]) -> None:
        from distdbg.collect.files.linted_files import cpu_limit
        from distdbg.collect.files.sources import read_source, settings_for
        from distdbg.lint.linting import lint_text
        from distdbg.lint.script.parsing import UnreadableScript

        with contextlib.suppress(OSError, DistdbgError, UnreadableScript):
            source = read_source(Path(script))
            wanted = settings_for([script], (), (), ()).wanted - set(off)
            if source.text is None or not wanted:
                return
            found = lint_text(source.path, source.text, wanted, cpu_limit()).findings
            sure = [f for f in found if f.confidence == "certain" and f.severity in ("error", "warning")]
            sure.sort(key=lambda finding: finding.severity != "error")
            said = [f"{f.evidence[0].path}:{f.evidence[0].line}: {f.summary} [{f.id}]" for f in sure[:_MOST]]
            more = [f"{len(sure) - _MOST} more: `distdbg lint {script}`"] if len(sure) > _MOST else []
            self._said = said + more
