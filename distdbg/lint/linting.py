"""From a file's text to its findings: parsed, asked of every rule, what comments silence left out."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from distdbg.lint import all_rules
from distdbg.lint.rule import Context, Hit, Insert
from distdbg.lint.script.modules import ABOUT_TRAINING, Modules
from distdbg.lint.script.parsing import Unreadable, parse
from distdbg.lint.script.script import File, Script, split_lines
from distdbg.model import Citation, Finding

_IGNORE = re.compile(r"#\s*distdbg:\s*ignore(?:\[(?P<ids>[\w\s,-]*)\])?")
_IGNORE_FILE = re.compile(r"^\s*#\s*distdbg:\s*ignore-file(?:\[(?P<ids>[\w\s,-]*)\])?", re.MULTILINE)


#: a statement at the top of a file: path and line
Piece = tuple[str, int]


@dataclass(frozen=True)
class _Found:
    piece: Piece
    at: tuple[int, int]
    finding: Finding
    fix: Insert | None
    silenced: bool


@dataclass(frozen=True)
class Linted:
    """One file's findings, the worst first within a line; `edits` mend some of them."""

    findings: tuple[Finding, ...]
    edits: tuple[Insert, ...] = ()
    silenced: int = 0


def lint_text(path: str, text: str, wanted: Collection[str] | None = None) -> Linted:
    """Lints one file by itself; `wanted` are the ids to report, None for all. Raises Unreadable."""
    found = _run(Script(File(path, text, parse(text))), wanted, {})
    return _linted(found)


def lint_files(texts: Mapping[str, str], wanted: Collection[str] | None = None) -> dict[str, Linted | Unreadable]:
    """Lints files by path, each joined with what it calls from the others.

    A function that others import is judged as those see it that nobody imports in turn: they know who calls it.
    """
    modules = Modules(texts)
    silences: dict[str, _Silence] = {}
    results: dict[str, Linted | Unreadable] = {}
    runs: dict[str, list[_Found]] = {}
    uses: dict[str, set[Piece]] = {}
    for path in texts:
        try:
            if not ABOUT_TRAINING.search(texts[path]):
                modules.module(path)
                continue
            script = modules.script(path)
            runs[path] = _run(script, wanted, silences)
            uses[path] = {(g.file.path, s.lineno) for g in script.grafts for s in g.statements}
        except Unreadable as error:
            results[path] = error
    kept = _as_the_outermost_see_it(runs, uses)
    for path in texts:
        results.setdefault(path, _linted(kept.get(path, [])))
    return results


def _as_the_outermost_see_it(runs: dict[str, list[_Found]], uses: dict[str, set[Piece]]) -> dict[str, list[_Found]]:
    """What is reported of each file, by path."""
    users: dict[Piece, set[str]] = defaultdict(set)
    for path, pieces in uses.items():
        for piece in pieces:
            users[piece].add(path)
    leads_to = {path: {where for where, _ in pieces} for path, pieces in uses.items()}
    kept: dict[str, dict[tuple[object, ...], _Found]] = defaultdict(dict)
    for path, found in runs.items():
        for one in found:
            further = any(path in leads_to[user] and user not in leads_to[path] for user in users[one.piece])
            if not further:
                kept[one.piece[0]].setdefault((one.finding.id, one.at), one)
    return {path: sorted(its.values(), key=lambda f: (f.at, f.finding.id)) for path, its in kept.items()}


def _linted(found: Sequence[_Found]) -> Linted:
    said = [f for f in found if not f.silenced]
    fixes = tuple(f.fix for f in said if f.fix is not None)
    return Linted(tuple(f.finding for f in said), fixes, len(found) - len(said))


def _run(script: Script, wanted: Collection[str] | None, silences: dict[str, _Silence]) -> list[_Found]:
    """Every hit in a script and in what it was joined with."""
    try:
        return [_found(hit, script, silences) for hit in _hits(script, wanted)]
    except (RecursionError, MemoryError):
        raise Unreadable("its expressions are nested too deeply") from None


def _found(hit: Hit, script: Script, silences: dict[str, _Silence]) -> _Found:
    file = script.file_of(hit.node)
    if file.path not in silences:
        silences[file.path] = _Silence(file.text)
    outermost = next((o for o in (hit.node, *script.above(hit.node)) if script.parents.get(o) is file.tree), hit.node)
    piece = (file.path, place(outermost)[0])
    return _Found(piece, place(hit.node), _finding(hit, script), hit.fix, silences[file.path].covers(hit, script))


def _hits(script: Script, wanted: Collection[str] | None) -> list[Hit]:
    if not ABOUT_TRAINING.search(script.file.text):
        return []  # asked before anything costly
    context = Context(script)
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
        first = place(hit.node)[0]
        if hit.node in script.parents:
            first = min(first, place(script.statement_of(hit.node))[0])
        last = _header_end(hit.node, script)
        return any(not ids or hit.id in ids for n in range(first, last + 1) if (ids := self.lines.get(n)) is not None)


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
        file = script.file_of(node)
        quote = file.lines[line - 1].strip()[:240] if line <= len(file.lines) else ""
        yield Citation(file.path, line, f"column {column}" + (f": {why}" if why else ""), quote)
