"""Order the findings by cause, mark which one explains another, and decide the outcome and its exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.failures.which_first import undecided_first
from distdbg.diagnosis.rank_states import rank_summaries
from distdbg.diagnosis.rules import run_rules
from distdbg.diagnosis.waits.hang import is_hung
from distdbg.diagnosis.waits.undecided import MISSING_RANK, undecided
from distdbg.errors import EXIT_HUNG, EXIT_LOST
from distdbg.evidence.exit_status import shell_code
from distdbg.evidence.jsonl import number
from distdbg.evidence.launcher import broken_agents
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import MOST_RANKS, CauseClass, Finding, Outcome, Report, Unknown, is_plausible_time
from distdbg.plain_text import shortened
from distdbg.protocol.agent_events import SamplingAccess, Stopping
from distdbg.protocol.launcher_events import AgentsGone, EndedHung, Launched, TimeUp
from distdbg.wording import name_ranks

_LAUNCHER_LOST = "launcher-lost"
#: What takes a whole node away: the job is lost sight of, and its ranks on it are no causes of their own.
_NODES_GONE = ("node-lost", "network-cut")
_DEVICE = "gpu-fault"
_CONSEQUENCES = (CauseClass.COMMUNICATION, CauseClass.VICTIM)
_SEVERITY = {"error": 0, "warning": 1, "info": 2}
#: Characters of a summary, of a line in the evidence, and of a cause, a remedy or an Unknown. Of a longer one the begin
#: and the end are shown.
_MAX_SUMMARY, _MAX_LINE, _MAX_PARAGRAPH = 500, 1000, 4000
_CONFIDENCE = {"certain": 0, "likely": 1, "possible": 2}


def build_report(evidence: RunEvidence) -> Report:
    """Run every check and judge what they found. Costs next to nothing where nothing failed."""
    found, failed = run_rules(evidence)
    cancelled = _cancelled_first(evidence, found)
    if cancelled:
        found = [f for f in found if f.cause_class not in _CONSEQUENCES]
    findings = _own_up(evidence, explain(order(found)))
    outcome = _outcome(evidence, findings, cancelled)
    code, whose = _exit_code(evidence, findings, outcome)
    if _died_of_hanging(evidence, findings, outcome) or _stands_still(evidence, findings):
        outcome = "hung"
        code, whose = _exit_code_of_hung(evidence, code, whose)
    unknown = (*undecided_first(evidence, findings), *_why_hung(evidence, findings, outcome))
    report = Report(
        outcome=outcome,
        findings=tuple(findings),
        run=run_facts(evidence),
        exit_code=code,
        exit_code_of=whose,
        unknown=(*failed, *unknown, *evidence.unknown, *_blind_spots(evidence)),
        ranks=tuple(rank_summaries(evidence)),
    )
    return _shorten_texts(evidence.hidden.mask_all(report))


def _shorten_texts(report: Report) -> Report:
    """Shorten what others have written, after masking: the first part of a secret would not be recognised. No rule
    shortens text of others itself."""
    unknown = (
        replace(u, what=shortened(u.what, _MAX_PARAGRAPH), because=shortened(u.because, _MAX_PARAGRAPH))
        for u in report.unknown
    )
    return replace(report, findings=tuple(map(_shorten_finding, report.findings)), unknown=tuple(unknown))


def _shorten_finding(finding: Finding) -> Finding:
    evidence = (
        replace(cited, where=cited.where and shortened(cited.where, _MAX_LINE), quote=shortened(cited.quote, _MAX_LINE))
        for cited in finding.evidence
    )
    return replace(
        finding,
        summary=shortened(finding.summary, _MAX_SUMMARY),
        cause=shortened(finding.cause, _MAX_PARAGRAPH),
        remedy=shortened(finding.remedy, _MAX_PARAGRAPH),
        evidence=tuple(evidence),
    )


def order(found: Iterable[Finding]) -> list[Finding]:
    """Errors first; among them by class of cause, then by first symptom, never by the order of exits.

    A finding that explains another precedes it, the most certain first, and is as severe.
    """
    ordered = sorted(
        found,
        key=lambda f: (
            f.cause_class is CauseClass.OBSERVATION,
            int(f.cause_class),
            f.cause_class is CauseClass.COMMUNICATION and f.id == "rank-exception",  # a bare loss of connection
            _SEVERITY[f.severity],
            f.first_seen if f.first_seen is not None else float("inf"),
            f.id != _DEVICE,  # before the CUDA error that it explains
            f.ranks,
            f.id,
        ),
    )
    explained = [(n, finding) for n, finding in enumerate(ordered) if finding.explained_by is not None]
    placed = []
    for n, one in enumerate(ordered):
        its = [(place, finding.severity) for place, finding in explained if _is_explained(finding, by=one)]
        severity = min([one.severity, *(severity for _, severity in its)], key=_SEVERITY.__getitem__)
        place = min([n, *(place for place, _ in its)])
        key = place, one.explained_by is not None, _CONFIDENCE[one.confidence], n
        placed.append((key, replace(one, severity=severity)))
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])]


def _is_explained(finding: Finding, *, by: Finding) -> bool:
    """Whether a rule says that a finding of another id on one of these ranks explains this one."""
    about_it = not finding.ranks or not by.ranks or not set(finding.ranks).isdisjoint(by.ranks)
    return finding.explained_by == by.id and finding is not by and about_it


def explain(findings: list[Finding]) -> list[Finding]:
    """Set explained_by: lost connections and victims by the root; another cause only where it plainly came after."""
    root = next((f for f in findings if f.cause_class < CauseClass.OBSERVATION), None)
    if root is None:
        return findings
    return [replace(f, explained_by=root.explained_by or root.id) if _explains(root, f) else f for f in findings]


def _explains(root: Finding, other: Finding) -> bool:
    if other is root or other.explained_by is not None or other.cause_class is CauseClass.OBSERVATION:
        return False
    if other.cause_class in _CONSEQUENCES:
        return True
    # A node that went down took its ranks with it; a rank's own error on a lost node is no second cause.
    # So did a device that failed: CUDA's error on its ranks is how they noticed.
    # Where a rank hangs while it handles an exception, in a `finally` say, it came there by that exception.
    hangs = other.cause_class is CauseClass.STUCK
    took_down = _is_loss_of_nodes(root) and not (hangs and _is_earlier(other, root))
    handles = root.cause_class is CauseClass.EXCEPTION_IN_FLIGHT and hangs
    from_here = took_down or (root.id == _DEVICE and other.id == "cuda-error") or handles
    return from_here and bool(other.ranks) and set(other.ranks) <= set(root.ranks)


def _is_loss_of_nodes(finding: Finding) -> bool:
    """Whether the launcher or an agent recorded that a node is gone: a rank's message about the network is no such
    record, and the rank has an exit code."""
    return finding.id in _NODES_GONE and finding.cause_class is CauseClass.KILLED_OR_OOM


def _is_earlier(finding: Finding, other: Finding) -> bool:
    return finding.first_seen is not None and other.first_seen is not None and finding.first_seen < other.first_seen


def _own_up(evidence: RunEvidence, findings: list[Finding]) -> list[Finding]:
    """A lost connection as the first finding is a symptom whose cause was not recorded: an Unknown says so."""
    if not findings or findings[0].cause_class is not CauseClass.COMMUNICATION:
        return findings
    lead = findings[0]
    named = {rank for finding in findings for rank in finding.ranks}
    silent = [rank.rank for rank in evidence.ranks if rank.rank not in named and rank.exit_code != 0]
    subject = "no rank" if evidence.has_all_ranks else "no rank that was read"
    words = f"Why is not known: {subject} shows an error of its own."
    if silent:
        words += f" {name_ranks(silent).capitalize()} said nothing before the end."
    return [replace(lead, confidence="possible", cause=f"{lead.cause} {words}"), *findings[1:]]


# -- outcome and exit code ----------------------------------------------------------------------------------------


def _cancelled_first(evidence: RunEvidence, found: list[Finding]) -> bool:
    """Whether the job was cancelled before any failure of its own."""
    if evidence.cancelled_by is None:
        return False
    asked = evidence.asked_to_end_at
    roots = [f for f in found if f.cause_class < CauseClass.STUCK and f.severity == "error"]
    return not any(f.first_seen is not None and asked is not None and f.first_seen < asked for f in roots)


def _outcome(evidence: RunEvidence, findings: list[Finding], cancelled: bool) -> Outcome:
    if cancelled:
        return "cancelled"
    codes = [rank.exit_code for rank in evidence.ranks]
    if any(f.severity == "error" and f.cause_class < CauseClass.OBSERVATION for f in findings):
        return "failed"
    if any(codes):
        return "failed"
    torchruns = [node.torchrun_exit_code for node in evidence.nodes]
    if any(torchruns):
        return "failed"
    if codes and all(code == 0 for code in codes) and _all_ranks_known(evidence):
        return "succeeded"
    return "unknown"


def _stands_still(evidence: RunEvidence, findings: list[Finding]) -> bool:
    """Nobody watched it, but a dump shows living ranks that keep the others waiting."""
    root = next((f for f in findings if f.cause_class < CauseClass.OBSERVATION), None)
    stuck = root is not None and root.cause_class is CauseClass.STUCK and root.severity == "error"
    return stuck and evidence.dump is not None and all(rank.ended is None for rank in evidence.ranks)


def _died_of_hanging(evidence: RunEvidence, findings: list[Finding], outcome: Outcome) -> bool:
    """Whether the job hung: also where it still runs, or where a person ended it; not where a rank ended by itself
    after all."""
    if not is_hung(evidence) or outcome == "succeeded":
        return False
    if _ended_by_us(evidence) or any(rank.ended is None for rank in evidence.ranks):
        return True
    return not any(f.severity == "error" and f.cause_class < CauseClass.STUCK for f in findings)


def _ended_by_us(evidence: RunEvidence) -> bool:
    return any(ended.attempt == evidence.attempt for _, ended in EndedHung.among(evidence.events))


def _exit_code_of_hung(evidence: RunEvidence, code: int | None, whose: str | None) -> tuple[int | None, str | None]:
    """75 where we ended it. Else the job's own: it lives on, or ended in its own way."""
    if _ended_by_us(evidence):
        return EXIT_HUNG, "distdbg, which ended the job because it hung"
    if any(rank.ended is None for rank in evidence.ranks) and not evidence.end_is_recorded:
        return None, _no_exit_code(evidence)
    if evidence.cancelled_by is not None:
        return _exit_code(evidence, [], "cancelled")
    return code, whose


def _no_exit_code(evidence: RunEvidence) -> str:
    """Why a job whose end is not recorded has no exit code."""
    launcher = evidence.launcher
    if launcher is None or launcher.alive:
        return "none yet: the job is still running"
    if launcher.alive is None:
        return f"not recorded, and whether the job still runs is not known: {launcher.because}"
    return f"not recorded: {launcher.name} is gone"


def _all_ranks_known(evidence: RunEvidence) -> bool:
    wanted = evidence.world_size
    return wanted is None or len(evidence.ranks) >= wanted


def _exit_code(evidence: RunEvidence, findings: list[Finding], outcome: Outcome) -> tuple[int | None, str | None]:
    """The root-cause rank's own code, 128+N where signal N ended it; None where nothing is known."""
    if outcome == "succeeded":
        return 0, f"all {len(evidence.ranks)} ranks" if len(evidence.ranks) > 1 else "rank 0"
    if outcome == "cancelled":
        number_ = _signal_of(evidence.cancelled_by or "")
        timed_out = TimeUp.is_in(evidence.events)  # by the batch script, before it ends what Slurm's warning did not
        why = "its time was up, and it had not ended by itself" if timed_out else "the job was cancelled"
        return shell_code(-number_), f"{signal.Signals(number_).name} ({why})"
    root = next((f for f in findings if f.cause_class < CauseClass.OBSERVATION), None)
    root = root or next(iter(f for f in findings if f.id == "abort-at-exit"), None)
    by_rank = {rank.rank: rank for rank in evidence.ranks}
    own = {f.rank.rank: f for f in failures(evidence)}
    if root is not None and root.id == _LAUNCHER_LOST:
        return None, _no_exit_code(evidence)
    if root is not None and _is_loss_of_nodes(root) and root.nodes and evidence.run_id:  # the code is our launcher's
        return EXIT_LOST, f"the loss of {', '.join(root.nodes)}"
    early = root.ranks if root is not None and root.id == "rank-exited-early" else ()
    for rank in root.ranks if root is not None and not early else ():
        code = _own_code(by_rank.get(rank), own.get(rank))
        if code and not _only_hung(by_rank[rank], own.get(rank)):
            return code, f"rank {rank}"
    return _first_bad_code(evidence, own, early) or (None, None)


def _only_hung(rank: RankRecord, failure: RankFailure | None) -> bool:
    """Whether the rank only hung: other ranks failed because of it, and it was ended for that."""
    return failure is None and rank.asked_to_stop is not None and (rank.exit_code or 0) < 0


def _own_code(rank: RankRecord | None, failure: RankFailure | None) -> int | None:
    if rank is None or (rank.from_log and rank.exit_code is None):
        return None
    if failure is not None and failure.kind == "exception" and failure.signal is None and (rank.exit_code or -1) < 0:
        return rank.script_exit_code or 1  # Python's on an exception; the signal that it got meanwhile is a consequence
    code = rank.own_exit_code
    return None if code is None else shell_code(code)


def _first_bad_code(evidence: RunEvidence, own: dict[int, RankFailure], but: tuple[int, ...]) -> tuple[int, str] | None:
    """The exit code of the first rank that failed, those in `but` left out; else an agent's, else torchrun's.

    An early exit with 0 does not count.
    """
    failed = [r for r in evidence.ranks if r.own_exit_code and r.rank not in but]
    if all(r.rank not in own for r in failed) and any(r.own_exit_code is None for r in evidence.ranks):
        failed = []  # they were ended because of others, and the code of one of these is not known
    if failed:
        first = min(failed, key=lambda r: (r.rank not in own, r.asked_to_stop is not None, r.ended or 0.0, r.rank))
        return _own_code(first, own.get(first.rank)) or 1, f"rank {first.rank}"
    for broken in broken_agents(evidence):
        its = broken.exit_code
        return shell_code(its), f"distdbg's agent on node {broken.node_rank}"
    # A torchrun that we ended, because another had failed, comes last: its own code says nothing.
    for node in sorted(evidence.nodes, key=lambda node: Stopping.is_in(node.events)):
        code = node.torchrun_exit_code
        if code:
            return shell_code(code), f"torchrun on node {node.node_rank}"
    return None


def _signal_of(cancelled_by: str) -> int:
    """SIGINT where Ctrl-C ended it, the signal named, else SIGTERM: what `distdbg cancel` sends."""
    for word in cancelled_by.replace(",", " ").split():
        if word in signal.Signals.__members__:
            return int(signal.Signals[word])
    return int(signal.SIGTERM)


# -- the rest of a report -----------------------------------------------------------------------------------------


def _last_seen(evidence: RunEvidence) -> list[float]:
    """The times of the last events of the nodes of a job that runs."""
    events = (event for node in evidence.nodes for _, event in node.events)
    return [t for event in events if (t := number(event, "t")) is not None]


def run_facts(evidence: RunEvidence) -> dict[str, Any]:
    """The report's `run`: what was launched, when, over how many ranks."""
    job = evidence.job
    times = [t for _, event in evidence.events if (t := number(event, "t")) is not None]
    ends = [rank.ended for rank in evidence.ranks if rank.ended is not None]
    ends += [] if evidence.end_is_recorded else _last_seen(evidence)
    ends += [evidence.dump.t] if evidence.dump is not None else []
    dumped = len(evidence.dump.ranks) if evidence.dump is not None else 0  # more where a launcher in a rank starts them
    topology = job.get("topology") if isinstance(job.get("topology"), dict) else {}
    started = number(job, "started") or next((event.t for _, event in Launched.among(evidence.events)), None)
    gone = AgentsGone.newest(evidence.events)
    if evidence.clock_was_set:  # then only the launcher's own measurement is a duration
        measured = started is not None and gone is not None and gone.seconds is not None
        ends, times = [started + gone.seconds] if measured else [], []  # type: ignore[operator,union-attr]
    return {
        "id": evidence.run_id,
        "path": evidence.run_path,
        "name": job.get("name"),
        "argv": job.get("argv"),
        "started": started,
        "ended": max(filter(is_plausible_time, [*ends, *times]), default=None),
        "attempt": evidence.attempt,
        "world_size": max(evidence.world_size or 0, len(evidence.ranks), dumped),
        "nodes": [node.host for node in evidence.nodes],
        "topology": topology,
        "worker_side": job.get("worker_side"),
        "versions": job.get("versions"),
        "cancelled_by": evidence.cancelled_by,
    }


def _why_hung(evidence: RunEvidence, findings: list[Finding], outcome: Outcome) -> Iterable[Unknown]:
    """A job that hangs without a finding is never passed over in silence."""
    if evidence.logs is not None and evidence.logs.one_watchdog and not any(map(_names_a_cause, findings)):
        yield MISSING_RANK
        return
    timed_out = any(rank.ended_by_watchdog for rank in evidence.ranks)
    if (outcome not in ("hung", "unknown") and not timed_out) or any(f.severity == "error" for f in findings):
        return
    if (why := undecided(evidence, hung=outcome == "hung" or timed_out)) is not None:
        yield why


def _names_a_cause(finding: Finding) -> bool:
    causes = finding.severity == "error" and finding.cause_class not in _CONSEQUENCES
    return causes and bool(finding.ranks or finding.nodes)


def _blind_spots(evidence: RunEvidence) -> Iterable[Unknown]:
    """What could not be seen at all, where it matters."""
    wanted = evidence.world_size
    topology = evidence.job.get("topology")
    said = topology.get("world_size") if isinstance(topology, dict) else None
    if wanted is None and said is not None:
        yield Unknown("the world size", f"job.json says {said}, and a job has 1 to {MOST_RANKS:,} ranks")
    if wanted is not None and len(evidence.ranks) < wanted:
        missing = wanted - len(evidence.ranks)
        started = any(rank.pid for rank in evidence.ranks)
        yield Unknown(
            f"{missing} of {wanted} ranks", "no agent left a record of them" if started else "they were never started"
        )
    if is_hung(evidence):
        yield from _closed_to_us(evidence)
    if evidence.job.get("worker_side") == "off":
        yield Unknown("steps, and exceptions that were handled", "the ranks had no worker side")


def _closed_to_us(evidence: RunEvidence) -> Iterable[Unknown]:
    """Nodes whose ranks refuse to have their stacks read, as the agents found at the start."""
    refused: dict[str, list[str]] = {}
    for node in evidence.nodes:
        for _, access in SamplingAccess.among(node.events):
            if access.because:
                refused.setdefault(access.because, []).append(f"node {node.node_rank}")
    for because, nodes in refused.items():
        yield Unknown(f"Python stacks on {', '.join(dict.fromkeys(nodes))}", because)
