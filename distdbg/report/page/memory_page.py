"""Render the page of memory snapshots: verdict, memory over time by stack, segments at the error, ranks side by side.

Its script zooms, and shows the stack that is clicked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from distdbg.evidence.memory.answer import MemoryAnswer, Moment, gib
from distdbg.model import Report
from distdbg.plain_text import clean
from distdbg.report.page.memory_drawing import HEIGHT, HUES, WIDTH, data, segment_map, spark, still
from distdbg.report.page.renderer import render_page, script_values, with_anchors
from distdbg.report.text.memory_text import title

#: With their whole digests; the page stays below 2 MB.
_MOST_PICTURES = 4
_MOST_SPARKS = 256
_MOST_ROWS = 40


def memory_page(report: Report, answers: Sequence[MemoryAnswer]) -> str:
    from markupsafe import Markup

    chosen = sorted(answers, key=lambda a: (a.oom is None, -a.peak.active))[:_MOST_PICTURES]
    top = max((a.peak.active for a in answers), default=1) or 1
    names = sorted({a.path for a in answers})
    return render_page(
        "memory.html",
        report=report,
        findings=with_anchors(report.verdict),
        title=f"GPU memory · {names[0] if len(names) == 1 else f'{len(names)} snapshots'}",
        **script_values("memory.js"),
        data=Markup(_embedded([data(a) for a in chosen])),
        pictures=[_picture(a) for a in chosen],
        sparks=[{"answer": a, "path": spark(a, top)} for a in answers[:_MOST_SPARKS]] if len(answers) > 1 else [],
        more=len(answers) - len(chosen),
        width=WIDTH,
        height=HEIGHT,
        hues=HUES,
        gib=gib,
    )


def _embedded(value: object) -> str:
    """JSON that cannot end the element around it; control characters are removed as in the whole page."""
    return clean(json.dumps(value, separators=(",", ":"), ensure_ascii=True)).replace("<", "\\u003c")


def _picture(answer: MemoryAnswer) -> dict[str, Any]:
    return {
        "title": title(answer),
        "answer": answer,
        "still": still(answer),
        "rows": _rows(answer, answer.peak, {s: n % HUES for n, s in enumerate(answer.overview.stacks)}),
        "kinds": [(kind, size, 100 * size / max(1, answer.peak.active)) for kind, size in answer.peak.kinds.items()],
        "phases": list(answer.peak.phases.items()),
        "modules": _modules(answer.peak),
        "segment_map": segment_map(answer.oom) if answer.oom else None,
        "at_oom": _rows(answer, answer.at_oom, {}) if answer.at_oom else [],
    }


def _rows(answer: MemoryAnswer, moment: Moment, hues: dict[int, int]) -> list[dict[str, Any]]:
    return [
        {
            "hue": hues.get(h.stack, -1),
            "label": answer.stacks[h.stack].label,
            "inner": answer.stacks[h.stack].inner,
            "callers": " < ".join(answer.stacks[h.stack].callers[1:4]),
            "frames": "\n".join(answer.stacks[h.stack].frames[:60]),
            "bytes": h.bytes,
            "share": 100 * h.bytes / max(1, moment.active),
            "count": h.count,
            "kinds": ", ".join(h.kinds),
            "names": h.names,
            "phase": answer.stacks[h.stack].phase,
        }
        for h in moment.holders[:_MOST_ROWS]
    ]


def _modules(moment: Moment) -> list[dict[str, Any]]:
    sizes = [(name, sum(kinds.values()), kinds) for name, kinds in moment.modules.items()]
    return [{"name": name, "bytes": size, "share": 100 * size / max(1, moment.active),
             "kinds": ", ".join(f"{kind} {gib(part)}" for kind, part in kinds.items())}
            for name, size, kinds in sizes[:_MOST_ROWS]]  # fmt: skip
