"""The renderer for JSON: `distdbg.report/1`, whose schema ships as configs/report.schema.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.model import REPORT_SCHEMA, Finding, Report
from distdbg.report.document import Document


@dataclass(frozen=True)
class JsonRenderer:
    """One object of `distdbg.report/1`, with a newline at its end."""

    def render(self, document: Document) -> str:
        return _dumps({**as_json(document.report), **document.json_values()})


def as_json(report: Report) -> dict[str, Any]:
    """Plain containers in the documented order of keys; `run` and `outcome` are null where there is no run."""
    has_run = bool(report.run and report.run.get("id"))
    return {
        "schema": REPORT_SCHEMA,
        "run": _plain(report.run) if has_run else None,
        "outcome": report.outcome if has_run else None,
        "exit_code": report.exit_code,
        "exit_code_of": report.exit_code_of,
        "findings": [_finding(finding) for finding in report.findings],
        "unknown": [{"what": u.what, "because": u.because} for u in report.unknown],
        "ranks": [
            {"rank": r.rank, "node": r.node, "state": r.state, "step": r.step, "top_frame": r.top_frame}
            for r in report.ranks
        ],
    }


def dumps(report: Report) -> str:
    """ASCII, with a newline at its end: lone surrogates of hostile output survive as escapes."""
    return _dumps(as_json(report))


def _dumps(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "ranks": list(finding.ranks),
        "nodes": list(finding.nodes),
        "step": finding.step,
        "side": finding.side,
        "module": finding.module or None,
        "phase": finding.phase or None,
        "summary": finding.summary,
        "cause": finding.cause,
        "remedy": finding.remedy,
        "explained_by": finding.explained_by,
        "evidence": [{"path": c.path, "line": c.line, "where": c.where, "quote": c.quote} for c in finding.evidence],
    }


def _plain(value: Any) -> Any:  # noqa: ANN401
    """job.json's own values, as a writer of strict JSON takes them: no NaN, no foreign types."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
