"""Render `distdbg explain --why`: the wait graph, the order of the findings, and what each rule read."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.failures.of_ranks import RankFailure
from distdbg.diagnosis.timeline.standing import Standing
from distdbg.diagnosis.waits.hang import Hang
from distdbg.diagnosis.why import RuleTrace, Why
from distdbg.model import Citation, Finding, Report, fold_ranks, grouped
from distdbg.wording import name_ranks

#: Every rule reads these to name ranks and hosts. They decide nothing.
_NAMES = frozenset({"ranks", "rank.rank", "rank.host", "rank.local_rank", "rank.node_rank"})


def why_text(why: Why, report: Report) -> str:
    return "\n".join([*_hang(why.hang), "", *_failures(why.failures), "", *_verdict(report), "", *_rules(why.rules)])


def _hang(hang: Hang | None) -> Iterator[str]:
    if hang is None:
        yield "wait graph: none (no dump of a hung job)"
        return
    yield f"wait graph of {hang.dump.path} ({len(hang.dump.ranks)} ranks, {hang.dump.reason})"
    if hang.moved:
        yield f"  made progress between the samples: ranks {fold_ranks(hang.moved)}"
    alike = grouped((_standing(standing), rank) for rank, standing in sorted(hang.standings.items()))
    for words, ranks in alike.items():
        yield f"  {_ranks(tuple(ranks))}: {words}"
    for wait in hang.waits:
        source = "stacks" if wait.by_stacks else f"recorder, group {wait.group}" if wait.group else "stacks and calls"
        yield (
            f"  wait: {wait.what}: {_ranks(wait.waiting)} for {_ranks(wait.awaited)}"
            f"{f' ({_ranks(wait.other)} with another operation)' if wait.other else ''} [{source}]"
        )
    for culprit in hang.culprits:
        yield f"  end of the waits: {_ranks(culprit.ranks)}: {culprit.standing.doing.name}"
    for circle in hang.circles:
        yield f"  circle: {_ranks(circle)}"
    if hang.mismatch is not None:
        sides = " against ".join(f"{_ranks(side.ranks)} in {side.signature.operation}" for side in hang.mismatch.sides)
        yield f"  mismatch: number {hang.mismatch.sequence} of group {hang.mismatch.group.name}: {sides}"


def _standing(standing: Standing) -> str:
    function = f" in {standing.function}" if standing.function else ""
    at = f" at {standing.frame}" if standing.frame is not None else ""
    return f"{standing.doing.name}{'' if standing.sure else ', not sure'}{function}{at}"


def _failures(failures: tuple[RankFailure, ...]) -> Iterator[str]:
    yield "failures"
    alike: dict[str, list[int]] = {}
    for one in failures:
        doubt = f" (in doubt: {one.doubt})" if one.doubt else ""
        alike.setdefault(f"{one.finding}, {one.cause_class.name}, by {one.kind}{doubt}", []).append(one.rank.rank)
    for words, ranks in alike.items():
        yield f"  {_ranks(tuple(ranks))}: {words}"
    if not failures:
        yield "  none"


def _verdict(report: Report) -> Iterator[str]:
    yield "order of the findings (class of cause, then severity, then first symptom)"
    for number, found in enumerate(report.findings, 1):
        by = f", explained by {found.explained_by}" if found.explained_by else ""
        yield f"  {number}. {found.id}: {found.cause_class.name}, {found.severity}, {found.confidence}{by}"
    if not report.findings:
        yield "  none"


def _rules(rules: tuple[RuleTrace, ...]) -> Iterator[str]:
    yield f"rules ({sum(rule.fired for rule in rules)} of {len(rules)} fired)"
    for trace in rules:
        name = f"{trace.rule.family}/{trace.rule.name}"
        if trace.failed:
            yield f"  FAILED  {name}: {trace.failed}"
        for found in trace.findings:
            yield f"  fired   {name}: {found.id} of {_ranks(found.ranks)}, because of {_record(found)}"
        if not trace.fired and not trace.failed:
            yield f"  -       {name}: {_what_was_read(trace)}"


def _what_was_read(trace: RuleTrace) -> str:
    read = [(name, count) for name, count in trace.read if name not in _NAMES]
    if not read:
        return "read the wait graph and the failures at most"
    empty = [name for name, count in read if not count]
    found = [f"{name} ({count})" for name, count in read if count]
    words = [f"read {', '.join(found)}"] if found else []
    return "; ".join([*words, f"no {', no '.join(empty)}"] if empty else words)


def _record(found: Finding) -> str:
    cited: Citation | None = next(iter(found.evidence), None)
    if cited is None:
        return "no record of its own"
    return cited.path + (f":{cited.line}" if cited.line else "") + (f" ({cited.where})" if cited.where else "")


def _ranks(ranks: tuple[int, ...]) -> str:
    return name_ranks(ranks) if ranks else "no rank"
