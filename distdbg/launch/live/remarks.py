"""Compose remarks for the terminal while ranks run: about single events, and about mistakes of the script."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.errors import DistdbgError

_STOPPED = {
    "rank-stopped": "rank {rank} was stopped (SIGSTOP, Ctrl-Z): the others will wait for it until it gets SIGCONT",
    "rank-continued": "rank {rank} goes on",
}
_CLOSED = "py-spy may not sample the ranks, so a rank that hangs must write its stack itself: "
_MOST = 3


class Remarks:
    """`on` takes every event of every agent."""

    def __init__(self) -> None:
        self._refusals: set[str] = set()

    def on(self, event: Mapping[str, Any]) -> str:
        """A sentence, or nothing. One that is true of all nodes is shown once."""
        name, because = str(event.get("event")), str(event.get("because") or "")
        if name in _STOPPED:
            return _STOPPED[name].format(rank=event.get("rank"))
        if name == "rungs" and because and because not in self._refusals:
            self._refusals.add(because)
            return _CLOSED + because
        return ""


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
