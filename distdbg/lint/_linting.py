"""From a file's text to its findings: parsed, asked of every rule, what comments silence left out."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from distdbg.lint import all_rules
from distdbg.lint._rule import Context, Hit, Insert
from distdbg.lint._script import Script, split_lines
from distdbg.model import Citation, Finding

#: Larger ones are generated, or no scripts at all.
MOST_BYTES = 4_000_000
_IGNORE = re.compile(r"#\s*distdbg:\s*ignore(?:\[(?P<ids>[\w\s,-]*)\])?")
_IGNORE_FILE = re.compile(r"^\s*#\s*distdbg:\s*ignore-file(?:\[(?P<ids>[\w\s,-]*)\])?", re.MULTILINE)
_PYTHON_2 = re.compile(r"^\s*(?:print\s+[\"'\w]|except\s+[\w.]+\s*,\s*\w+\s*:|exec\s+[\"'])", re.MULTILINE)


class Unreadable(Exception):
    """This text is no Python that can be read; the text says why, as the end of "skipped, because …"."""


@dataclass(frozen=True)
class Linted:
    """One file's findings, the worst first within a line; `edits` mend some of them."""

    findings: tuple[Finding, ...]
    edits: tuple[Insert, ...] = ()
    silenced: int = 0


def lint_text(path: str, text: str, wanted: Collection[str] | None = None) -> Linted:
    """Lints one file; `wanted` are the ids to report, None for all. Raises Unreadable."""
    try:
        script = Script(path, text, _parse(text))
        hits = _hits(script, wanted)
    except (RecursionError, MemoryError):
        raise Unreadable("its expressions are nested too deeply") from None
    silent = _Silence(text)
    kept = [hit for hit in hits if not silent.covers(hit, script)]
    return Linted(
        tuple(_finding(hit, script) for hit in kept),
        tuple(hit.fix for hit in kept if hit.fix is not None),
        len(hits) - len(kept),
    )


def _parse(text: str) -> ast.Module:
    if len(text) > MOST_BYTES:
        raise Unreadable(f"it is larger than {MOST_BYTES // 1_000_000} MB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own questionable escapes are not ours to print
            return ast.parse(text)
    except SyntaxError as error:
        if _PYTHON_2.search(text):
            raise Unreadable(f"line {error.lineno} is Python 2") from None
        raise Unreadable(f"line {error.lineno} is no Python of this version: {error.msg}") from None
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _hits(script: Script, wanted: Collection[str] | None) -> list[Hit]:
    context = Context(script)
    if not context.about_training:
        return []
    found: dict[tuple[str, int, int], Hit] = {}
    for rule in all_rules():
        if wanted is not None and not any(doc.id in wanted for doc in rule.docs):
            continue
        for hit in rule.run(context):
            if wanted is None or hit.id in wanted:
                found.setdefault((hit.id, *place(hit.node)), hit)
    return sorted(found.values(), key=lambda hit: (*place(hit.node), hit.id))


def place(node: ast.AST) -> tuple[int, int]:
    """Line and column, both 1-based, as editors count them."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


class _Silence:
    """What `# distdbg: ignore[id]` comments silence: on a line of the statement, or alone on the line above it."""

    def __init__(self, text: str) -> None:
        self.lines: dict[int, frozenset[str]] = {}
        self.whole: frozenset[str] | None = None
        if "distdbg:" not in text:
            return
        for number, line in enumerate(split_lines(text), 1):
            match = _IGNORE.search(line)
            if match and not _IGNORE_FILE.match(line):
                self.lines[number] = _ids(match["ids"])
                if line.lstrip().startswith("#"):
                    self.lines[number + 1] = self.lines[number]
        whole = _IGNORE_FILE.search(text)
        self.whole = _ids(whole["ids"]) if whole else None

    def covers(self, hit: Hit, script: Script) -> bool:
        if self.whole is not None and (not self.whole or hit.id in self.whole):
            return True
        line = place(hit.node)[0]
        last = _header_end(hit.node, script)
        return any(not ids or hit.id in ids for n in range(line, last + 1) if (ids := self.lines.get(n)) is not None)


def _ids(text: str | None) -> frozenset[str]:
    """Empty for "all of them"."""
    return frozenset(part.strip() for part in (text or "").split(",") if part.strip())


def _header_end(node: ast.AST, script: Script) -> int:
    """The last line of a statement, or of a loop's or function's header."""
    statement = node if isinstance(node, ast.stmt) else script.statement_of(node) if node in script.parents else node
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return max(place(statement)[0], place(body[0])[0] - 1)
    last: int | None = getattr(statement, "end_lineno", None)
    return last or place(statement)[0]


def _finding(hit: Hit, script: Script) -> Finding:
    doc = next(d for rule in all_rules() for d in rule.docs if d.id == hit.id)
    return Finding(
        hit.id,
        hit.severity,
        hit.confidence,
        hit.summary,
        cause=hit.cause or doc.meaning,
        remedy=doc.remedy,
        evidence=tuple(_citations(hit, script)),
    )


def _citations(hit: Hit, script: Script) -> Iterator[Citation]:
    for node, why in ((hit.node, ""), *hit.related):
        line, column = place(node)
        quote = script.lines[line - 1].strip()[:240] if line <= len(script.lines) else ""
        yield Citation(script.path, line, f"column {column}" + (f": {why}" if why else ""), quote)
