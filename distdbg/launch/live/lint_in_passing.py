"""The script is read while its ranks start: what is certainly a mistake is said before it has cost an hour."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import DistdbgError

if TYPE_CHECKING:
    from distdbg.model import Finding

_MOST = 3


class LintInPassing:
    """Nothing waits for it. `modes` are the guards': one that is off is not spoken of here either."""

    def __init__(self, script: str | None, modes: Mapping[str, str]) -> None:
        self._said: list[str] = []
        if script is not None and modes.get("all") != "off":
            off = [name for name, mode in modes.items() if mode == "off"]
            threading.Thread(target=self._lint, args=(script, off), name="lint", daemon=True).start()

    def told(self) -> list[str]:
        """Sentences that have not been given yet."""
        found, self._said = self._said, []
        return found

    def _lint(self, script: str, off: list[str]) -> None:
        from distdbg.collect.files.lint_settings import settings_for
        from distdbg.collect.files.sources import read_source
        from distdbg.lint.linting import lint_text
        from distdbg.lint.script.parsing import Unreadable

        with contextlib.suppress(OSError, DistdbgError, Unreadable):
            source = read_source(Path(script))
            wanted = settings_for([script], (), (), ()).wanted - set(off)
            if source.text is None or not wanted:
                return
            sure = [f for f in lint_text(source.path, source.text, wanted).findings if _is_sure(f)]
            said = [f"{_place(f)}: {f.summary} [{f.id}]" for f in sure[:_MOST]]
            more = [f"{len(sure) - _MOST} more: `distdbg lint {script}`"] if len(sure) > _MOST else []
            self._said = said + more


def _is_sure(finding: Finding) -> bool:
    return finding.confidence == "certain" and finding.severity in ("error", "warning")


def _place(finding: Finding) -> str:
    where = finding.evidence[0]
    return f"{where.path}:{where.line}"
