"""The job never began: a script that cannot be imported, a name that is not resolved, a port that is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from distdbg.checks._findings import finding, groups, hosts, who
from distdbg.evidence.failure import RankFailure, failures
from distdbg.evidence.messages import recognise
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.evidence.traceback_text import last_chain, shortened
from distdbg.model import CauseClass, Citation, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="launch-failed",
        severity="error",
        title="the job could not start",
        meaning="The ranks failed before their first step for a reason that lies in the start itself: the script has a "
        "syntax error or imports what is not there, a name is not resolved, a port is taken, a node did not come, or "
        "torch or the GPUs that were asked for are missing.",
        how_seen="The kind of the ranks' exceptions, where no step was made; torchrun's own last words, where no rank "
        "was started.",
        remedy="The finding says what to mend; `distdbg launch --dry-run` shows what would be started.",
        source="https://pytorch.org/docs/stable/elastic/run.html",
    ),
)
_NO_TRACEBACK = re.compile(r"^\S*(run\.py|torchrun|python\S*): (error: )?(.+)$", re.MULTILINE)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "launch-failed"):
        yield _of_ranks(evidence, group)
    if not any(rank.pid for rank in evidence.ranks):
        silent = [n for n in evidence.nodes if n.torchrun_exit_code not in (0, None)]
        yield from _of_torchrun(silent, alone=len(silent) == len(evidence.nodes))


def _of_ranks(evidence: RunEvidence, group: list[RankFailure]) -> Finding:
    base = finding(evidence, group)
    lead = group[0]
    if lead.kind != "exception":
        return base
    ranks = who(evidence, base.ranks)
    at = f" at {lead.where}" if lead.where else ""
    where = "" if len(base.ranks) == len(evidence.ranks) else _only_there(evidence, base)
    cause = base.cause + where
    if lead.known is None and lead.type.endswith("ModuleNotFoundError"):
        cause = f"The module is not installed for the interpreter that runs the script.{where}"
        remedy = "Install it, or activate the environment that has it, on every node (`distdbg --version` shows which)."
        base = replace(base, remedy=remedy)
    return replace(base, summary=f"{ranks} could not start{at}: {lead.headline}", cause=cause)


def _only_there(evidence: RunEvidence, base: Finding) -> str:
    """Where every rank of some nodes failed so and none elsewhere, the nodes differ and not the script."""
    others = hosts(evidence, {r.rank for r in evidence.ranks} - set(base.ranks))
    if len(evidence.nodes) > 1 and base.nodes and not set(base.nodes) & set(others):
        return f" Only on {', '.join(base.nodes)}: that node's installation or files differ."
    return ""


def _of_torchrun(nodes: list[NodeRecord], *, alone: bool) -> Iterable[Finding]:
    """No rank was ever started: what torchrun said last, once for all nodes that say the same."""
    said: dict[str, tuple[list[NodeRecord], Finding]] = {}
    for node in nodes:
        found = _one_torchrun(node)
        said.setdefault(found.cause, ([], found))[0].append(node)
    for which, found in said.values():
        names = tuple(dict.fromkeys(n.host for n in which))
        place = "" if alone and len(said) == 1 else f" on {', '.join(f'node {n.node_rank}' for n in which)}"
        yield replace(found, summary=f"torchrun{place} {found.summary}", nodes=names)


def _one_torchrun(node: NodeRecord) -> Finding:
    tail = node.torchrun_tail
    chain = last_chain(tail)
    known = recognise(tail[-6000:])
    plain = list(_NO_TRACEBACK.finditer(tail))
    if chain:
        line, quote = chain[0].line, shortened("\n\n".join(e.text for e in (chain[0], chain[-1])[: len(chain)]), 30)
        words = f"{chain[0].type}: {chain[0].first_line}".rstrip(": ")
    elif plain:
        line, quote, words = tail.count("\n", 0, plain[-1].start()), plain[-1][0], plain[-1][3]
    else:
        rows = tail.rstrip().split("\n")
        line, quote, words = len(rows) - 1, "\n".join(rows[-5:]), rows[-1][:200]
    code = node.torchrun_exit_code
    summary = f"ended with exit code {code} before it started a rank" + (f": {words[:300]}" if words else "")
    return Finding(
        id="launch-failed",
        severity="error",
        confidence="certain",
        summary=summary,
        cause=f"{known.symptom} {known.cause} [{known.id}]" if known else words,
        remedy=known.fix if known else f"torchrun's own words are in {node.torchrun_path}.",
        evidence=(Citation(node.torchrun_path, node.torchrun_first_line + line, quote=quote),),
        cause_class=CauseClass.UNCAUGHT_ERROR,
        first_seen=next((float(e["t"]) for _, e in node.events if isinstance(e.get("t"), (int, float))), None),
    )
