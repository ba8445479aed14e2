"""What an editor shows of a file while it is written: places as a language server counts them, and quick fixes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from distdbg.lint.fixing import with_edits
from distdbg.lint.linting import lint_text
from distdbg.lint.script.file import split_lines
from distdbg.lint.script.parsing import UnreadableScript
from distdbg.lint.script.work_limit import WorkLimit
from distdbg.model import Finding, Severity


@dataclass(frozen=True)
class QuickFix:
    """`text` is put in at a place; both parts of it count from 0, the second in UTF-16 units."""

    title: str
    line: int
    column: int
    text: str
    certain: bool


@dataclass(frozen=True)
class Mark:
    """A finding at one line, counted from 0; from its first letter to its last one, in UTF-16 units."""

    id: str
    severity: Severity
    message: str
    line: int
    begin: int
    end: int
    fixes: tuple[QuickFix, ...]


def marks(
    path: str, text: str, wanted: Collection[str] | None = None, limit: WorkLimit | None = None
) -> tuple[Mark, ...]:
    """Of a text that cannot be read there are none: the editor's own checks say why."""
    try:
        linted = lint_text(path, text, wanted, limit)
    except UnreadableScript:
        return ()
    lines = split_lines(text)
    edits = {id(finding): edit for finding, edit in linted.fixes}
    found = []
    for finding in linted.findings:
        number = finding.evidence[0].line or 1
        line = lines[number - 1] if number <= len(lines) else ""
        fixes = [_silence(finding, number, line)] if "#" not in line and not line.endswith("\\") else []
        edit = edits.get(id(finding))
        if edit is not None:
            inserted = split_lines(with_edits(text, [edit]))[edit.before - 1] + "\n"
            fixes.insert(0, QuickFix(f"Insert {edit.text}", edit.before - 1, 0, inserted, certain=True))
        begin = len(line) - len(line.lstrip())
        message = f"{finding.summary}\n{finding.remedy}" if finding.remedy else finding.summary
        found.append(
            Mark(
                finding.id,
                finding.severity,
                message,
                number - 1,
                begin,
                max(_units(line.rstrip()), begin),
                tuple(fixes),
            )
        )
    return tuple(found)


def _silence(finding: Finding, number: int, line: str) -> QuickFix:
    text = f"  # distdbg: ignore[{finding.id}]"
    return QuickFix(f"Silence {finding.id} here", number - 1, _units(line.rstrip()), text, certain=False)


def _units(text: str) -> int:
    """Its length in UTF-16, as the protocol counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
