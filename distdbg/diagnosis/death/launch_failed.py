"""The job never began: a script that cannot be imported, a name that is not resolved, a port that is taken."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.findings import failure_finding, groups, who_failed
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.exit_status import signal_name
from distdbg.evidence.launcher import BrokenAgent, broken_agents
from distdbg.evidence.logs.messages import KnownMessage, recognise
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.evidence.stacks.tracebacks import last_chain
from distdbg.findings.scheduler import OUTSIDE
from distdbg.model import CauseClass, Citation, Finding
from distdbg.protocol.agent_events import Stopping, TorchrunExited

_LOG_PREFIX = re.compile(r"^\[[WEIF]\d{4} [^\]]*\] ")
_NO_TRACEBACK = re.compile(r"^\S*(run\.py|torchrun|python[\d.]*): (error: )?(.+)$", re.MULTILINE)


@rule("launch-failed", of_failures=True)
def launch_failed(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "launch-failed"):
        yield _of_ranks(evidence, group)
    if not any(rank.pid or rank.from_log for rank in evidence.ranks):
        broken = list(broken_agents(evidence))
        yield from map(_of_agent, broken)
        silent = [n for n in evidence.nodes if n.torchrun_exit_code not in (0, None)]
        if broken:  # then those of the other nodes were ended for it
            silent = [n for n in silent if n.torchrun_exit_code != -signal.SIGTERM]
        alone = len(silent) == len(evidence.nodes)
        was_cancelled = evidence.cancelled_by is not None
        silent = [n for n in silent if not (was_cancelled or Stopping.is_in(n.events)) or _had_complained(n)]
        yield from _of_torchrun(silent, alone=alone)


def _had_complained(node: NodeRecord) -> bool:
    """Whether a torchrun that its agent ended had reported more than the signal that ended it."""
    known = _known(node)
    return known is not None and known.finding not in OUTSIDE


def _of_ranks(evidence: RunEvidence, group: list[RankFailure]) -> Finding:
    base = failure_finding(evidence, group)
    lead = group[0]
    ranks = who_failed(evidence, group)
    at = f" at {lead.where}" if lead.where else ""
    if lead.kind == "exit" and lead.known is not None and lead.citation is not None:
        said = next((line for line in lead.citation.quote.split("\n") if lead.known.match.search(line)), lead.message)
        return replace(base, summary=f"{ranks} could not start{at}: {said.strip()}")
    if lead.kind != "exception":
        return base
    where = "" if len(base.ranks) == len(evidence.ranks) else _only_there(evidence, base)
    cause = base.cause + where
    if lead.known is None and lead.type.endswith("ModuleNotFoundError"):
        cause = f"The module is not installed for the interpreter that runs the script.{where}"
        remedy = "Install it, or activate the environment that has it, on every node (`distdbg --version` shows which)."
        base = replace(base, remedy=remedy)
    return replace(base, summary=f"{ranks} could not start{at}: {lead.headline}", cause=cause)


def _only_there(evidence: RunEvidence, base: Finding) -> str:
    """Where every rank of some nodes failed so and none elsewhere, the nodes differ and not the script."""
    failed = evidence.hosts_of(base.ranks)
    others = evidence.hosts_of({r.rank for r in evidence.ranks} - set(base.ranks))
    if len(evidence.nodes) > 1 and failed and set(failed).isdisjoint(others):
        return f" Only on {', '.join(failed)}: that node's installation or files differ."
    return ""


def _of_agent(broken: BrokenAgent) -> Finding:
    code = broken.exit_code
    ended = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    known = recognise(broken.said)
    said = f"Its last words: {broken.said}" if broken.said else "It left no word."
    return build_finding(
        "launch-failed",
        ranks=(),
        confidence="certain",
        summary=f"distdbg's agent on node {broken.node_rank} ({broken.host or 'host unknown'}) {ended} before it "
        "started a rank",
        cause=f"{said}. {known.symptom} {known.cause} [{known.id}]" if known else said,
        remedy=known.fix
        if known
        else "What it said stands in carrier-*.log of the run directory, or in agent.log of its node; a traceback of "
        "distdbg's own is a mistake of distdbg's: report it.",
        nodes=(broken.host,) if broken.host else (),
        evidence=(Citation("events.jsonl", broken.line, quote=f"agent-exited, exit code {code}"),),
        cause_class=CauseClass.UNCAUGHT_ERROR,
        first_seen=broken.t,
    )


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
    known = _known(node)
    line, quote, words = _last_words(tail, known)
    code = node.torchrun_exit_code or 0
    ended = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    return build_finding(
        "launch-failed",
        ranks=(),
        confidence="certain" if code > 0 else "likely",
        summary=f"{ended} before it started a rank" + (f": {words}" if words else ""),
        cause=f"{known.symptom} {known.cause} [{known.id}]" if known else words,
        remedy=known.fix if known else f"torchrun's own words are in {node.torchrun_path}.",
        evidence=(Citation(node.torchrun_path, (node.torchrun_first_line or 1) + line, quote=quote),),
        cause_class=CauseClass.UNCAUGHT_ERROR,
        first_seen=next((exited.t for _, exited in TorchrunExited.among(node.events)), None),
    )


def _known(node: NodeRecord) -> KnownMessage | None:
    return recognise(node.torchrun_tail[-6000:]) or recognise(node.torchrun_tail)


def _last_words(tail: str, known: KnownMessage | None) -> tuple[int, str, str]:
    """(0-based line, quote, one sentence) of what torchrun said: its traceback's messages, else the line that tells."""
    chain = last_chain(tail)
    if chain:
        quote = "\n".join(f"{e.type}: {e.first_line}".rstrip(": ") for e in chain)
        return chain[0].line, quote, quote.split("\n")[0]
    if plain := list(_NO_TRACEBACK.finditer(tail)):
        return tail.count("\n", 0, plain[-1].start()), plain[-1][0], plain[-1][3]
    rows = list(enumerate(tail.rstrip().split("\n")))
    telling = [(i, row) for i, row in rows if known is not None and known.match.search(row)]
    said = telling or [(i, row) for i, row in rows if not row.startswith(("frame #", "<omitting"))] or rows
    return said[-1][0], "\n".join(row for _, row in said[-3:]), _LOG_PREFIX.sub("", said[-1][1])
