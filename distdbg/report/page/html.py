"""One offline page for a run: no network, no script, everything that a rank printed escaped.

`render_page` is the kit that other commands' pages use: they extend base.html and bring their own blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.verdict import rank_state
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.hidden_values import HiddenValues
from distdbg.model import CauseClass, Report, fold_ranks
from distdbg.plain_text import clean
from distdbg.report.page.course import course
from distdbg.report.page.picture_page import picture_values
from distdbg.report.page.step_boxes import step_boxes
from distdbg.report.page.timeline import FOLD_ABOVE, Span, timeline
from distdbg.report.text.picture_text import report_picture
from distdbg.report.text.report import duration

if TYPE_CHECKING:
    from jinja2 import Environment

#: All log tails together; the page stays below 2 MB.
_LOG_BUDGET = 600_000
_ONE_LOG = 24_000
_MOST_LOGS = 12
_MOST_RANK_ROWS = 48
_MOST_FINDINGS = 60


def render_html(report: Report, evidence: RunEvidence) -> str:
    """The page of a run: verdict, timeline, topology, environment with origins, findings, tails of logs."""
    own = {f.rank.rank: f for f in failures(evidence)}
    roots = {rank for f in report.verdict if f.severity == "error" for rank in f.ranks}
    cells = [_cell(rank, own.get(rank.rank), rank.rank in roots) for rank in evidence.ranks]
    run = report.run or {}
    over = course(report, evidence)
    picture = report_picture(report, evidence)
    verdict = sorted(report.verdict, key=lambda f: ("error", "warning", "info").index(f.severity))
    return render_page(
        "report.html",
        report=report,
        run=run,
        title=str(run.get("id") or "distdbg report"),
        took=_took(run),
        when=_when(run.get("started")),
        verdict=verdict[:_MOST_FINDINGS],
        picture=picture_values(picture) if picture is not None else None,
        explained=[f for f in report.findings if f.explained_by is not None][:_MOST_FINDINGS],
        timeline=timeline([s for s in map(_span, evidence.ranks, cells) if s is not None]),
        by_node=_by_node(evidence, cells),
        counts=_counts(cells),
        rows=_rank_rows(cells),
        all_rows=cells if len(cells) > _MOST_RANK_ROWS else (),
        nodes=_node_rows(evidence, cells),
        compact=len(cells) > FOLD_ABOVE,
        course=over,
        steps=step_boxes(evidence) if over is None or not over.has_step_times else None,
        environment=_environment(evidence.job),
        job=evidence.job,
        logs=_logs(evidence, report, own),
    )


def render_page(template: str, **values: Any) -> str:  # noqa: ANN401
    """A template of this package with its values; every string is cleaned of controls, then escaped."""
    return _environment_of_templates().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment_of_templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("distdbg.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters["ranks"] = fold_ranks
    environment.filters["shortened"] = _shortened
    return environment


def _shortened(text: str, most: int = 40) -> str:
    """A list with commas, cut between two entries."""
    return text if len(text) <= most else text[:most].rpartition(",")[0] + ",…"


# -- ranks --------------------------------------------------------------------------------------------------------


def _cell(rank: RankRecord, failure: RankFailure | None, root: bool) -> dict[str, Any]:
    """One rank for the grid and the table."""
    return {
        "rank": rank.rank,
        "node": rank.host,
        "node_rank": rank.node_rank,
        "state": rank_state(rank, failure),
        "kind": _kind(rank, failure, root),
        "step": rank.step,
        "phase": rank.phase or "",
        "where": str(failure.where) if failure is not None and failure.where else "",
        "pid": rank.pid,
        "ran": duration(rank.ended - rank.started) if rank.ended and rank.started else "",
        "memory": f"{rank.rss_bytes / 2**30:.2f} GiB" if rank.rss_bytes else "",
        "mark": failure.t if failure is not None else None,
    }


def _kind(rank: RankRecord, failure: RankFailure | None, root: bool) -> str:
    if root:
        return "root"
    if rank.exit_code is None:
        return "unknown" if rank.ended is not None or rank.pid is None else "running"
    if rank.exit_code == 0 or (failure is not None and failure.cause_class is CauseClass.OBSERVATION):
        return "finished"
    return "stopped" if failure is None or failure.cause_class is CauseClass.VICTIM else "failed"


def _span(rank: RankRecord, cell: Mapping[str, Any]) -> Span | None:
    if rank.started is None:
        return None
    end = max(rank.ended or rank.started, rank.started)
    mark = cell["mark"]
    inside = mark is not None and rank.started <= mark <= end + 1
    return Span(
        rank.rank, rank.host, rank.started, end, cell["kind"], cell["state"], min(mark, end) if inside else None
    )


def _by_node(evidence: RunEvidence, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    hosts = {node.node_rank: node.host for node in evidence.nodes}
    found: dict[int, dict[str, Any]] = {}
    for cell in cells:
        node = found.setdefault(
            cell["node_rank"], {"node_rank": cell["node_rank"], "host": hosts.get(cell["node_rank"], ""), "cells": []}
        )
        node["cells"].append(cell)
    return [found[key] for key in sorted(found)]


_WORDS = {"root": "root cause", "failed": "failed after it", "stopped": "stopped", "unknown": "unknown",
          "running": "running", "finished": "finished"}  # fmt: skip


def _counts(cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """(kind, words, how many), worst first, those that occur."""
    every = [(kind, words, sum(cell["kind"] == kind for cell in cells)) for kind, words in _WORDS.items()]
    return [entry for entry in every if entry[2]]


def _rank_rows(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The table's rows: each rank; of many, those that stand out, and one row for each group of equals."""
    if len(cells) <= _MOST_RANK_ROWS:
        return [{**cell, "ranks": str(cell["rank"]), "count": 1} for cell in cells]
    same: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        same.setdefault((cell["kind"], cell["state"], cell["where"], cell["step"], cell["phase"]), []).append(cell)
    order = list(_WORDS)
    groups = sorted(same.values(), key=lambda g: (order.index(g[0]["kind"]), len(g), g[0]["rank"]))
    rows = []
    for group in groups[:_MOST_RANK_ROWS]:
        one = len(group) == 1
        nodes = {cell["node"] for cell in group}
        blank = {} if one else {"pid": None, "ran": "", "memory": ""}
        node = group[0]["node"] if len(nodes) == 1 else f"{len(nodes)} nodes"
        ranks = fold_ranks(cell["rank"] for cell in group)
        rows.append({**group[0], **blank, "node": node, "ranks": ranks, "count": len(group)})
    return rows


# -- nodes, environment, logs -------------------------------------------------------------------------------------


def _node_rows(evidence: RunEvidence, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Nodes for the topology's table; equal ones of many are one row."""
    by_node: dict[int, list[Mapping[str, Any]]] = {}
    for cell in cells:
        by_node.setdefault(cell["node_rank"], []).append(cell)
    same: dict[tuple[Any, ...], list[NodeRecord]] = {}
    for node in evidence.nodes:
        own = by_node.get(node.node_rank, [])
        states = ", ".join(f"{n} {words}" for _, words, n in _counts(own))
        alone = len(evidence.nodes) <= FOLD_ABOVE
        key = (node.node_rank if alone else -1, len(own), states, node.torchrun_exit_code)
        same.setdefault(key, []).append(node)
    rows = []
    for (_, count, states, code), nodes in sorted(same.items(), key=lambda item: (len(item[1]), item[1][0].node_rank)):
        members = {node.node_rank for node in nodes}
        rows.append(
            {
                "nodes": fold_ranks(members),
                "hosts": nodes[0].host if len(nodes) == 1 else f"{nodes[0].host} … {nodes[-1].host}",
                "per_node": count,
                "ranks": fold_ranks(c["rank"] for c in cells if c["node_rank"] in members),
                "states": states,
                "torchrun": code,
            }
        )
    return rows


def _environment(job: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Variables by where they come from; those inherited last. Masked values stay as job.json has them."""
    found: dict[str, list[dict[str, str]]] = {}
    entries = job.get("environment")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            row = {"name": str(entry.get("name", "")), "value": str(entry.get("value", ""))[:2000]}
            found.setdefault(str(entry.get("origin", "unknown")), []).append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith("inherited"), item[0])))


def _logs(evidence: RunEvidence, report: Report, own: Mapping[int, RankFailure]) -> list[dict[str, str]]:
    """Tails of the logs that matter: the roots', the first others that failed, rank 0's; then torchrun's own."""
    wanted = [rank for finding in report.verdict for rank in finding.ranks[:3]]
    wanted += [*list(sorted(own, key=lambda r: (own[r].cause_class, r))[:3]), 0]
    by_rank = {rank.rank: rank for rank in evidence.ranks}
    left = _LOG_BUDGET
    hidden = HiddenValues(evidence.job)
    logs: list[dict[str, str]] = []
    for number in list(dict.fromkeys(wanted))[:_MOST_LOGS]:
        rank = by_rank.get(number)
        for name, text, path in _streams(rank) if rank is not None else ():
            if text.strip() and left > 0:
                tail = clean(hidden.mask(text[-_ONE_LOG:]))[-left:]
                left -= len(tail)
                logs.append({"title": f"rank {number} · {name}", "path": path, "text": tail})
    for node in [n for n in evidence.nodes if n.torchrun_exit_code][:2]:
        if node.torchrun_tail.strip():
            tail = clean(hidden.mask(node.torchrun_tail[-_ONE_LOG:]))
            logs.append({"title": f"torchrun on node {node.node_rank}", "path": node.torchrun_path, "text": tail})
    return logs


def _streams(rank: RankRecord) -> list[tuple[str, str, str]]:
    return [("stderr", rank.stderr_tail, rank.stderr_path), ("stdout", rank.stdout_tail, rank.stdout_path)]


def _took(run: Mapping[str, Any]) -> str:
    match run.get("started"), run.get("ended"):
        case int() | float() as started, int() | float() as ended if ended >= started:
            return duration(ended - started)
    return ""


def _when(started: object) -> str:
    """UTC, from epoch seconds."""
    if not isinstance(started, (int, float)) or not 0 <= started < 2**33:
        return ""
    return datetime.fromtimestamp(started, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
