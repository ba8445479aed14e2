"""Define what a run must show to count as the same failure, read from its report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import dicts

#: What ends a traceback: the class of the exception before what it says, which holds sizes that change.
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")


@dataclass(frozen=True)
class Symptom:
    """`finding`: an id that must be in the report. Of the root finding of an unnamed failure also `where` it was seen
    and the `exception`, so that another mistake that a smaller run makes is not taken for it. Without a report, the
    `exit_code` must be the same."""

    finding: str | None = None
    where: str | None = None
    exception: str | None = None
    exit_code: int | None = None

    @property
    def words(self) -> str:
        if self.finding is None:
            return f"exit code {self.exit_code}"
        more = " at ".join(word for word in (self.exception, self.where) if word)
        return f"{self.finding} ({more})" if more else self.finding

    def shown_by(self, report: Mapping[str, Any] | None, exit_code: int) -> bool:
        if self.finding is None:
            return exit_code == self.exit_code
        for finding in _findings(report):
            if finding.get("id") == self.finding:
                seen = described(finding)
                if (self.where, self.exception) in ((None, None), (seen.where, seen.exception)):
                    return True
        return False


def symptom_of(report: Mapping[str, Any] | None, exit_code: int) -> Symptom | None:
    """The failure of a run: its first finding of severity error that no other explains, else its exit code."""
    for finding in _findings(report):
        if finding.get("severity") == "error" and finding.get("explained_by") is None:
            return described(finding)
    return Symptom(exit_code=exit_code) if exit_code else None


def described(finding: Mapping[str, Any]) -> Symptom:
    """A finding with what marks an exception: its class, and the line that raised it."""
    evidence: Mapping[str, Any] = next(iter(dicts(finding.get("evidence"))), {})
    lines = str(evidence.get("quote") or "").rstrip().splitlines()
    frames = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    ends = (_EXCEPTION.match(line) for line in lines[frames[-1] + 1 :] if line[:1].strip()) if frames else iter(())
    exception = next((end.group(1) for end in ends if end), None)
    return Symptom(str(finding.get("id")), evidence.get("where") if frames else None, exception)


def other_failure(report: Mapping[str, Any] | None, exit_code: int) -> str:
    """What a run that does not show the symptom did instead: empty where it ended well."""
    found = symptom_of(report, exit_code)
    return f"failed otherwise: {found.words}" if found else ""


def _findings(report: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return dicts((report or {}).get("findings"))
