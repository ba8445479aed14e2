"""Build the report and the document of memory snapshots, by the rules that judge a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.memory.answer import BEFORE_RECORDING, MemoryAnswer, Moment, StackInfo, gib
from distdbg.evidence.memory.diff import Change, Difference
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report, Unknown
from distdbg.report.document import Block, Document, Section

#: The findings of a whole run that are about memory.
_OURS = {"memory-leak", "host-memory-growth", "fragmentation", "untracked-gpu-memory", "peak-too-high", "cuda-oom",
         "host-oom", "graph-retained", "reference-cycle"}  # fmt: skip


@dataclass(frozen=True)
class MemoryUse(Block):
    """What fills the devices, and `ranks`: what the ranks of a run recorded over its steps, in lines."""

    answers: Sequence[MemoryAnswer]
    ranks: str = ""


def memory_document(report: Report, answers: Sequence[MemoryAnswer], ranks: str = "") -> Document:
    return Document(
        replace(report, run={}),
        sections=(Section("", (MemoryUse(answers, ranks),)),),
        json_keys=lambda: {"memory": memory_plain(answers)},
    )


def memory_report(
    answers: Sequence[MemoryAnswer], unread: Sequence[tuple[str, str]] = (), run: RunEvidence | None = None
) -> Report:
    """`unread` are files, and why they were not read; `run` is the evidence of the run, if it is one run's."""
    unknown = [Unknown(name, why) for name, why in unread]
    unknown += [one for answer in answers for one in _unknown(answer)]
    empty = RunEvidence({}, 0, (), ())
    evidence = replace(run or empty, unknown=tuple(unknown), snapshots=tuple(answers))
    report = build_report(evidence)
    findings = tuple(finding for finding in report.findings if finding.id in _OURS)
    return replace(
        report, findings=findings, unknown=tuple(unknown), run=None, outcome=None, exit_code=None, exit_code_of=None
    )


def _unknown(answer: MemoryAnswer) -> Iterator[Unknown]:
    """What a reader must know beside the figures."""
    where = f"{answer.path}, device {answer.device}"
    if not answer.events:
        yield Unknown(f"how {where} got there", "it has no trace: only the memory when it was written")
    elif answer.overflowed:
        yield Unknown(
            f"what came before in {where}",
            f"its trace is not whole: {answer.dropped_blocks} live blocks have a stack and no allocation. A ring "
            "dropped its oldest events (max_entries), or recording was begun twice",
        )
    elif stood := answer.peak.kinds.get(BEFORE_RECORDING, 0):
        yield Unknown(f"what allocated {gib(stood)} of the peak of {where}", "it was allocated before recording began")
    if answer.leaks_unknown and answer.events:
        yield Unknown(f"whether {where} leaks", answer.leaks_unknown)


def memory_plain(answers: Sequence[MemoryAnswer]) -> list[dict[str, Any]]:
    """An entry a device and file, without what only the picture needs."""
    return [_answer_json(answer) for answer in answers]


def _answer_json(answer: MemoryAnswer) -> dict[str, Any]:
    oom = asdict(answer.oom) if answer.oom else None
    if oom is not None and answer.at_oom is not None:
        oom = {k: v for k, v in oom.items() if k not in ("segments", "more_segments", "stack")}
        oom |= {"stack": _stack_json(answer.stacks[answer.oom.stack]), "held": _moment_json(answer, answer.at_oom)}  # type: ignore[union-attr]
    return {
        "path": answer.path,
        "rank": answer.rank,
        "device": answer.device,
        "events": answer.events,
        "seconds": answer.seconds,
        "steps": answer.steps,
        "steps_from": answer.steps_from,
        "dropped_blocks": answer.dropped_blocks,
        "unknown_frees": answer.unknown_frees,
        "start": answer.start,
        "peak": _moment_json(answer, answer.peak),
        "end": _moment_json(answer, answer.last),
        "leaks": [
            {"stack": _stack_json(answer.stacks[leak.stack]), "bytes_per_step": leak.slope, "grown": leak.grown,
             "count": leak.count, "points": list(leak.points)}
            for leak in answer.leaks
        ],
        "leaks_unknown_because": answer.leaks_unknown,
        "oom": oom,
    }  # fmt: skip


def _moment_json(answer: MemoryAnswer, moment: Moment) -> dict[str, Any]:
    return {
        "event": moment.event,
        "t": moment.t,
        "active": moment.active,
        "reserved": moment.reserved,
        "kinds": dict(moment.kinds),
        "stacks": [
            {"stack": _stack_json(answer.stacks[h.stack]), "bytes": h.bytes, "count": h.count, "kinds": dict(h.kinds),
             "peak_without": h.without or None, "names": h.names or None}
            for h in moment.holders
        ],
        "phases": dict(moment.phases),
        "modules": {name: dict(kinds) for name, kinds in moment.modules.items()},
        "others": moment.rest,
    }  # fmt: skip


def _stack_json(stack: StackInfo) -> dict[str, Any]:
    return {
        "label": stack.label,
        "phase": stack.phase or None,
        "file": stack.file or None,
        "line": stack.line or None,
        "frames": list(stack.frames),
    }


def diff_plain(a: MemoryAnswer, b: MemoryAnswer, found: Sequence[Difference]) -> dict[str, Any]:
    return {
        "a": {"path": a.path, "rank": a.rank, "device": a.device},
        "b": {"path": b.path, "rank": b.rank, "device": b.device},
        "moments": [
            {
                "when": one.when,
                "active": [one.before, one.after],
                "reserved": [one.reserved_before, one.reserved_after],
                "kinds": {kind: [before, after] for kind, before, after in one.kinds},
                "changes": [_change_json(change) for change in one.changes],
                "others": list(one.others),
            }
            for one in found
        ],
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "stack": _stack_json(change.stack),
        "bytes": [change.before, change.after],
        "count": [change.count_before, change.count_after],
    }
