"""Render the findings of lint as text, as GitHub annotations and as SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distdbg.model import Citation, Finding, FindingDoc, Unknown
from distdbg.plain_text import clean, one_line
from distdbg.report.text.screen import COLOR, PLAIN
from distdbg.wording import counted

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}
SHOW_ALL = "--all shows"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def place(citation: Citation) -> tuple[int, int]:
    """Line and column, both 1-based; of a notebook, in its cell."""
    column = re.match(r"(?:cell \d+, )?column (\d+)", citation.where or "")
    return citation.line or 1, int(column[1]) if column else 1


def _file(citation: Citation) -> str:
    """The path; of a notebook, with the cell."""
    cell = re.match(r"cell \d+", citation.where or "")
    return clean(citation.path) + (f":{cell[0]}" if cell else "")


def as_lines(
    findings: Iterable[Finding], unknown: Sequence[Unknown], files: int, *, hidden: int = 0, color: bool = False
) -> Iterable[str]:
    """`path:line:column id message` a finding, with the line itself below it, then what was skipped, then a summary.

    `files` have been read; `hidden` are findings of severity info that are not among these.
    """
    style = COLOR if color else PLAIN
    marks = {"error": style.error, "warning": style.warning, "info": style.dim}
    counts = dict.fromkeys(_LEVELS, 0)
    for finding in findings:
        counts[finding.severity] += 1
        at = finding.evidence[0]
        line, column = place(at)
        sure = "" if finding.confidence == "certain" else f" ({finding.confidence})"
        head = f"{marks[finding.severity]}{finding.id}{style.end if color else ''}"
        yield f"{_file(at)}:{line}:{column} {finding.severity} {head}{sure} {one_line(finding.summary)}"
        for other in finding.evidence[1:]:
            why = (other.where or "").partition(": ")[2]
            yield f"    {_file(other)}:{other.line} {one_line(why)}: {one_line(other.quote)}"
        yield f"    do: {one_line(finding.remedy)}"
    for one in unknown:
        yield f"{one_line(one.what)}: skipped, because {one_line(one.because)}"
    said = [f"{n} {kind}{'s' if n != 1 and kind != 'info' else ''}" for kind, n in counts.items() if n]
    if files or not unknown:
        more = [f"{hidden} info ({SHOW_ALL})"] if hidden else []
        skipped = f", {len(unknown)} skipped" if unknown else ""
        found = ", ".join(said + more) if said else ", ".join(["nothing found", *more])
        yield f"{found} in {_count(files)}{skipped}"
    else:
        yield f"nothing was linted: {_count(len(unknown))} skipped"


def _count(files: int) -> str:
    return counted(files, "file")


def as_github(findings: Iterable[Finding], unknown: Iterable[Unknown]) -> Iterable[str]:
    """Workflow commands, which GitHub shows beside the line."""
    for finding in findings:
        line, column = place(finding.evidence[0])
        path = _escaped(finding.evidence[0].path, properties=True)
        text = _escaped(f"{finding.summary}. {finding.remedy}")
        yield f"::{_GITHUB[finding.severity]} file={path},line={line},col={column},title={finding.id}::{text}"
    for one in unknown:
        yield f"::warning file={_escaped(one.what, properties=True)},title=skipped::{_escaped(one.because)}"


def _escaped(text: str, *, properties: bool = False) -> str:
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), *([(":", "%3A"), (",", "%2C")] if properties else [])]
    for plain, code in pairs:
        text = text.replace(plain, code)
    return clean(text)


def as_sarif(
    findings: Sequence[Finding], unknown: Sequence[Unknown], docs: Mapping[str, FindingDoc], version: str
) -> str:
    """SARIF 2.1.0: one run, the rules that found something, a notification for each file that was skipped."""
    ids = sorted({f.id for f in findings})
    run = {
        "tool": {
            "driver": {
                "name": "distdbg",
                "semanticVersion": version,
                "rules": [_sarif_rule(docs[i]) for i in ids],
            }
        },
        "results": [_sarif_result(f, ids.index(f.id)) for f in findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "warning",
                        "message": {"text": f"skipped, because {u.because}"},
                        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(u.what)}}}],
                    }
                    for u in unknown
                ],
            }
        ],
        "columnKind": "utf16CodeUnits",
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _sarif_rule(doc: FindingDoc) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": doc.id,
        "shortDescription": {"text": doc.title},
        "fullDescription": {"text": doc.meaning},
        "help": {"text": f"{doc.how_seen}\n\n{doc.remedy}"},
        "defaultConfiguration": {"level": _LEVELS[doc.severity]},
    }
    if doc.source.startswith("http"):
        rule["helpUri"] = doc.source
    return rule


def _sarif_result(finding: Finding, rule: int) -> dict[str, Any]:
    return {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.summary}. {finding.remedy}"},
        "locations": [_location(finding.evidence[0])],
        "relatedLocations": [
            _location(c) | {"id": n, "message": {"text": (c.where or "").partition(": ")[2] or "see also"}}
            for n, c in enumerate(finding.evidence[1:], 1)
        ],
        "properties": {"confidence": finding.confidence},
    }


def _location(citation: Citation) -> dict[str, Any]:
    line, column = place(citation)
    region = {"startLine": line, "startColumn": column, "snippet": {"text": citation.quote}}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(citation.path)}, "region": region}}


def _uri(path: str) -> str:
    """Relative to where lint was called, as upload actions want it; an absolute path says so by its scheme."""
    safe = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
    scheme = "file://" if path.startswith("/") else ""
    return scheme + "".join(
        c if c in safe else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogateescape")) for c in path
    )
