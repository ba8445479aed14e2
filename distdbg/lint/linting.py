"""Lint a file's text: parse it, ask every rule, drop what comments silence."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from distdbg.findings import catalogue
from distdbg.lint import all_rules
from distdbg.lint.rule import Context, Hit, Insert
from distdbg.lint.script.file import split_lines
from distdbg.lint.script.modules import Joined, Modules
from distdbg.lint.script.parsing import UnreadableScript, check_readable
from distdbg.lint.script.script import Script
from distdbg.lint.script.words import met
from distdbg.lint.script.work_limit import TookTooLong, WorkLimit
from distdbg.model import Citation, Finding, FindingDoc, Severity

_IGNORE = re.compile(r"#\s*distdbg:\s*ignore(?:\[(?P<ids>[\w\s,-]*)\])?")
_IGNORE_FILE = re.compile(r"^\s*#\s*distdbg:\s*ignore-file(?:\[(?P<ids>[\w\s,-]*)\])?", re.MULTILINE)


#: severities, the worst first
_ORDER: tuple[Severity, ...] = get_args(Severity)
#: places that a finding cites where several files show it
_MOST_CITED = 5

#: a statement at the top of a file: path, and which one it is
Piece = tuple[str, int]


#: a function: path, and the line of its `def`
CalledFunction = tuple[str, int]


@dataclass(frozen=True)
class FoundHit:
    """`cited` are the statements that hold what it cites; `ways` the functions it is in, or that lead to it."""

    piece: Piece
    cited: frozenset[Piece]
    ways: frozenset[CalledFunction]
    at: tuple[int, int]
    finding: Finding
    fix: Insert | None
    silenced: bool


@dataclass(frozen=True)
class FileRun:
    """What one file shows, joined with what it calls from others; it can be sent to another process, and kept.

    `uses` are the statements of other files that it was joined with, `calls` the functions in them that code of another
    file calls; `asked` the ids of the rules that ran, and were not turned away because nothing shows several ranks.
    `consulted` are the files that all this depends on. `unreadable` says why there is no more; if the file
    `took_too_long`, that does not hold for another time.
    """

    path: str
    hits: tuple[FoundHit, ...] = ()
    uses: frozenset[Piece] = frozenset()
    calls: frozenset[CalledFunction] = frozenset()
    asked: frozenset[str] = frozenset()
    consulted: frozenset[str] = frozenset()
    unreadable: str = ""
    took_too_long: bool = False

    def judges(self, hit: FoundHit) -> bool:
        """Is its silence about the hit of a file that it uses a verdict? It must see what the hit cites, and a caller.

        A hit outside functions needs no caller.
        """
        return (
            hit.finding.id in self.asked
            and hit.cited <= self.uses
            and (not hit.ways or not self.calls.isdisjoint(hit.ways))
        )


@dataclass(frozen=True)
class Linted:
    """One file's findings, the worst first within a line; `fixes` mend some of them."""

    findings: tuple[Finding, ...]
    fixes: tuple[tuple[Finding, Insert], ...] = ()
    silenced: int = 0

    @property
    def edits(self) -> tuple[Insert, ...]:
        """Each edit once, in the order of the lines."""
        return tuple(sorted({edit for _, edit in self.fixes}, key=lambda edit: edit.before))


def misspelt_ids(text: str) -> tuple[tuple[int, str], ...]:
    """(line, id) of comments that would silence a finding which there is not."""
    return tuple((line, name) for line, name in _Silence(text).ids() if name not in catalogue())


def lint_text(path: str, text: str, wanted: Collection[str] | None = None, limit: WorkLimit | None = None) -> Linted:
    """Lints one file by itself; `wanted` are the ids to report, None for all. Raises UnreadableScript."""
    modules = Modules({path: text}, limit)
    run = _run(modules, modules.joined(path), {})
    return _linted([f for f in run.hits if wanted is None or f.finding.id in wanted])


def lint_files(texts: Mapping[str, str], wanted: Collection[str] | None = None) -> dict[str, Linted | UnreadableScript]:
    """Lints files by path, each joined with what it calls from the others."""
    linter = FilesLinter(texts)
    return combined(map(linter.run, texts), wanted)


class FilesLinter:
    """Lints one of these files after the other, each joined with what it calls from the others; every rule runs."""

    def __init__(self, texts: Mapping[str, str], limit: WorkLimit | None = None) -> None:
        self._texts, self._limit = texts, limit
        self._modules = Modules(texts, limit)
        self._silences: dict[str, _Silence] = {}

    def run(self, path: str) -> FileRun:
        own = frozenset({path})
        if self._limit is not None:
            self._limit.restart()
        try:
            if not self._modules.about_training(path):
                check_readable(self._texts[path])
                return FileRun(path, consulted=own)
            return _run(self._modules, self._modules.joined(path), self._silences)
        except UnreadableScript as error:
            took_too_long = isinstance(error, TookTooLong)
            return FileRun(path, consulted=own, unreadable=str(error), took_too_long=took_too_long)


def combined(runs: Iterable[FileRun], wanted: Collection[str] | None) -> dict[str, Linted | UnreadableScript]:
    """What is reported of each file, by path.

    A function that others import is judged as those see it that nobody imports in turn: they know who calls it. One
    that they import and do not call is judged as its own file sees it.
    """
    by_path = {run.path: run for run in runs}
    results: dict[str, Linted | UnreadableScript] = {
        path: UnreadableScript(run.unreadable) for path, run in by_path.items() if run.unreadable
    }
    kept = _as_the_outermost_see_it(by_path, wanted)
    for path in by_path:
        results.setdefault(path, _linted(kept.get(path, [])))
    return {path: results[path] for path in by_path}


def _as_the_outermost_see_it(runs: Mapping[str, FileRun], wanted: Collection[str] | None) -> dict[str, list[FoundHit]]:
    users: dict[Piece, set[str]] = defaultdict(set)
    for path, run in runs.items():
        for piece in run.uses:
            users[piece].add(path)
    leads_to = {path: {where for where, _ in run.uses} for path, run in runs.items()}
    kept: dict[str, dict[tuple[object, ...], FoundHit]] = defaultdict(dict)
    for path, run in runs.items():
        for one in run.hits if wanted is None else [f for f in run.hits if f.finding.id in wanted]:
            outer = (user for user in users[one.piece] if path in leads_to[user] and user not in leads_to[path])
            if not any(runs[user].judges(one) for user in outer):
                same = kept[one.piece[0]].get((one.finding.id, one.at))
                kept[one.piece[0]][one.finding.id, one.at] = one if same is None else _as_both_see_it(same, one)
    return {path: sorted(its.values(), key=lambda f: (f.at, f.finding.id)) for path, its in kept.items()}


def _as_both_see_it(one: FoundHit, other: FoundHit) -> FoundHit:
    """The worse of the two, with what the other one cites of files that neither the finding nor the first one is in."""
    if _is_graver(other.finding.severity, one.finding.severity):
        one, other = other, one
    cited = one.finding.evidence
    files = {citation.path for citation in cited}
    more = [citation for citation in other.finding.evidence if citation.path not in files]
    return replace(one, finding=replace(one.finding, evidence=(*cited, *more)[: max(len(cited), _MOST_CITED)]))


def _is_graver(severity: Severity, than: Severity) -> bool:
    return _ORDER.index(severity) < _ORDER.index(than)


def _linted(found: Sequence[FoundHit]) -> Linted:
    said = [f for f in found if not f.silenced]
    fixes = tuple((f.finding, f.fix) for f in said if f.fix is not None)
    return Linted(tuple(f.finding for f in said), fixes, len(found) - len(said))


def _run(modules: Modules, joined: Joined, silences: dict[str, _Silence]) -> FileRun:
    """Every hit in a script and in what it was joined with."""
    uses = frozenset((file, place) for file, places in joined.imported.items() for place in places)
    consulted = joined.consulted | {joined.path}
    rules = [rule for rule in all_rules() if met(rule.needs, joined.words)]
    if not rules or not modules.about_training(joined.path):
        return FileRun(joined.path, uses=uses, consulted=consulted)  # asked before anything costly
    found: dict[tuple[int, int, str], FoundHit] = {}
    asked: set[str] = set()
    try:
        context = Context(modules.script(joined))
        for rule in rules:
            context.turned_away = False
            for hit in rule.hits(context):
                at = (*place(hit.node), rule.doc.id)
                severity: Severity | None = hit.severity or rule.doc.severity
                if severity is not None and context.of_a_test(hit.node):
                    severity = _severity_in_test(severity, rule.family)
                if severity is not None and (at not in found or _is_graver(severity, found[at].finding.severity)):
                    found[at] = _found(rule.doc, hit, severity, context, silences)
            if not context.turned_away:
                asked.add(rule.doc.id)
        calls = frozenset(_called_from_elsewhere(context)) if uses else frozenset()
    except (RecursionError, MemoryError):
        raise UnreadableScript("its expressions are nested too deeply") from None
    hits = tuple(found[at] for at in sorted(found))
    return FileRun(joined.path, hits, uses, calls, frozenset(asked), consulted)


def _called_from_elsewhere(context: Context) -> Iterator[CalledFunction]:
    script = context.script
    for function, calls in context.values.callers.items():
        file = script.file_of(function)
        if file is not script.file and any(script.file_of(call) is not file for call in calls):
            yield file.path, function.lineno


def _severity_in_test(severity: Severity, family: str) -> Severity | None:
    """A test trains nothing that is kept: a mistake of training is a remark there, and a remark nothing."""
    if severity == "info":
        return None
    return "error" if severity == "error" and family != "training" else "info"


def _found(doc: FindingDoc, hit: Hit, severity: Severity, context: Context, silences: dict[str, _Silence]) -> FoundHit:
    script = context.script
    file = script.file_of(hit.node)
    if file.path not in silences:
        silences[file.path] = _Silence(file.text)
    finding = Finding(
        doc.id,
        severity,
        hit.confidence,
        hit.summary,
        cause=doc.meaning,
        remedy=doc.remedy,
        evidence=tuple(_citation(node, why, script) for node, why in ((hit.node, ""), *hit.related)),
    )
    silenced = silences[file.path].covers(doc.id, hit.node, script)
    cited = frozenset(_piece(node, script) for node in (hit.node, *(node for node, _ in hit.related)))
    functions = [f for way in context.values.ways_to(hit.node) if (f := script.function_of(way)) is not None]
    ways = frozenset((script.file_of(f).path, f.lineno) for f in functions)
    return FoundHit(_piece(hit.node, script), cited, ways, place(hit.node), finding, hit.fix, silenced)


def _piece(node: ast.AST, script: Script) -> Piece:
    """The statement at the top of a file that holds the node."""
    file = script.file_of(node)
    outermost = next((o for o in (node, *script.above(node)) if script.parents.get(o) is file.tree), None)
    return file.path, file.places.get(outermost, -1)


def _citation(node: ast.AST, why: str, script: Script) -> Citation:
    line, column = place(node)
    file = script.file_of(node)
    quote = file.lines[line - 1].strip()[:240] if line <= len(file.lines) else ""
    return Citation(file.path, line, f"column {column}" + (f": {why}" if why else ""), quote)


def place(node: ast.AST) -> tuple[int, int]:
    """Line and column, both 1-based, as editors count them."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


class _Silence:
    """What `# distdbg: ignore[id]` comments silence: on a line of the statement, or alone on the line above it.

    A set of ids is empty for "all of them".
    """

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

    def ids(self) -> Iterator[tuple[int, str]]:
        """(line, id) of every id that the comments name; line 1 for those of the whole file."""
        above: frozenset[str] | None = None
        for number, ids in self.lines.items():
            if ids is not above:  # a comment alone on its line holds for the next line, too
                yield from ((number, name) for name in sorted(ids))
            above = ids
        yield from ((1, name) for name in sorted(self.whole or ()))

    def covers(self, name: str, node: ast.AST, script: Script) -> bool:
        """Is the finding `name` silenced by a line of the node's statement, or of a loop's or function's header?"""
        if self.whole is not None and (not self.whole or name in self.whole):
            return True
        inside = isinstance(node, ast.stmt) or node in script.parents
        statement = script.statement_of(node) if inside else node
        first = min(place(node)[0], place(statement)[0])
        body = getattr(statement, "body", None)
        if isinstance(body, list) and body:
            last = max(place(statement)[0], place(body[0])[0] - 1)
        else:
            last = getattr(statement, "end_lineno", None) or place(statement)[0]
        return any(not ids or name in ids for n in range(first, last + 1) if (ids := self.lines.get(n)) is not None)


def _ids(text: str | None) -> frozenset[str]:
    return frozenset(part.strip() for part in (text or "").split(",") if part.strip())
