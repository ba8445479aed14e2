"""The keys `memory` and `diff` of `distdbg memory … --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from distdbg.evidence.memory.answer import MemoryAnswer, Moment, StackInfo
from distdbg.evidence.memory.diff import Change, Difference


def memory_plain(answers: Sequence[MemoryAnswer]) -> list[dict[str, Any]]:
    """An entry a device and file, without what only the picture needs."""
    return [_answer(answer) for answer in answers]


def _answer(answer: MemoryAnswer) -> dict[str, Any]:
    oom = asdict(answer.oom) if answer.oom else None
    if oom is not None and answer.at_oom is not None:
        oom = {k: v for k, v in oom.items() if k not in ("segments", "more_segments", "stack")}
        oom |= {"stack": _stack(answer.stacks[answer.oom.stack]), "held": _moment(answer, answer.at_oom)}  # type: ignore[union-attr]
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
        "peak": _moment(answer, answer.peak),
        "end": _moment(answer, answer.last),
        "leaks": [
            {"stack": _stack(answer.stacks[leak.stack]), "bytes_per_step": leak.slope, "grown": leak.grown,
             "count": leak.count, "points": list(leak.points)}
            for leak in answer.leaks
        ],
        "leaks_unknown_because": answer.leaks_unknown,
        "oom": oom,
    }  # fmt: skip


def _moment(answer: MemoryAnswer, moment: Moment) -> dict[str, Any]:
    return {
        "event": moment.event,
        "t": moment.t,
        "active": moment.active,
        "reserved": moment.reserved,
        "kinds": dict(moment.kinds),
        "stacks": [
            {"stack": _stack(answer.stacks[h.stack]), "bytes": h.bytes, "count": h.count, "kinds": dict(h.kinds),
             "peak_without": h.without or None, "names": h.names or None}
            for h in moment.holders
        ],
        "phases": dict(moment.phases),
        "modules": {name: dict(kinds) for name, kinds in moment.modules.items()},
        "others": moment.rest,
    }  # fmt: skip


def _stack(stack: StackInfo) -> dict[str, Any]:
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
                "changes": [_change(change) for change in one.changes],
                "others": list(one.others),
            }
            for one in found
        ],
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "stack": _stack(change.stack),
        "bytes": [change.before, change.after],
        "count": [change.count_before, change.count_after],
    }
