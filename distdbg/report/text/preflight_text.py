"""Render a preflight for a terminal: a table with a row for each check, then findings and unknowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median

from distdbg.evidence.host.preflight import SILENT, Preflight, names_of
from distdbg.model import Report
from distdbg.report.document import Cell, Column, Document, Section, Table
from distdbg.report.text.renderer import TextRenderer
from distdbg.report.text.screen import PLAIN_SCREEN, Screen
from distdbg.wording import counted, size

#: check -> its findings
_ROWS = {
    "nodes": ("duplicate-node-rank", "unreachable"),
    "interfaces": ("interface-wrong",),
    "clocks": ("clock-skew",),
    "disk": ("disk-low", "folder-not-shared"),
    "limits": ("limits-low",),
    "ptrace": ("ptrace-denied",),
    "versions": ("versions-differ",),
    "GPUs": ("gpu-fault", "gpu-throttled", "gpu-memory-taken"),
    "all-reduce": ("slow-link",),
}
_NOT_REPORTED = "not reported by any node"
#: Rows whose look has another name.
_UNKNOWN_ROWS = {"nodes": "names"}
_KINDS = {"pass": "good", "warn": "warning", "fail": "error", "unknown": "dim"}


def states(report: Report) -> dict[str, str]:
    """check -> pass, warn, fail or unknown."""
    found = {}
    for row, ids in _ROWS.items():
        severities = {finding.severity for finding in report.findings if finding.id in ids}
        unknown = any(u.row == _UNKNOWN_ROWS.get(row, row) for u in report.unknown)
        found[row] = "fail" if "error" in severities else "warn" if severities else "unknown" if unknown else "pass"
    return found


def render_preflight(report: Report, preflight: Preflight, screen: Screen = PLAIN_SCREEN) -> str:
    """The table, then findings. Without a newline at its end."""
    rows = [
        (row, Cell(state, kind=_KINDS[state]), _words(row, state, report, preflight))
        for row, state in states(report).items()
        if preflight.several or row not in ("clocks", "all-reduce")
    ]
    table = Table((Column(), Column(), Column(wrap=True)), tuple(rows))
    # The table and the finding already say that a node did not answer.
    rest = replace(report, unknown=tuple(u for u in report.unknown if u.because != SILENT))
    renderer = TextRenderer(screen)
    ended = "interrupted after" if preflight.incomplete else "in"
    title = f"preflight of {counted(preflight.expected, 'node')} ({preflight.on}) {ended} {preflight.seconds:.1f} s"
    return "\n".join([title, *renderer.sections([Section("", (table,))])[1:], *renderer.verdict(Document(rest))])


def _words(row: str, state: str, report: Report, preflight: Preflight) -> str:
    if state == "unknown":
        unknown = next(u for u in report.unknown if u.row == _UNKNOWN_ROWS.get(row, row))
        return f"{f'of {names_of(unknown.nodes)}, ' if unknown.nodes else ''}because {unknown.because}"
    seen = {"nodes": _nodes, "interfaces": _interfaces, "clocks": _clocks, "disk": _disk, "versions": _versions,
            "GPUs": _gpus, "all-reduce": _all_reduce, "ptrace": lambda _: "py-spy may look into a rank",
            "limits": _limits}  # fmt: skip
    tell: Callable[[Preflight], str] = seen[row]
    bad = [finding.summary for finding in report.findings if finding.id in _ROWS[row]]
    if bad and row not in ("clocks", "all-reduce"):
        return "see below" if len(bad) == 1 else f"see below: {len(bad)} findings"
    return tell(preflight)


def _nodes(preflight: Preflight) -> str:
    names = [node.name for node in preflight.answered]
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    if not preflight.several:
        return shown
    port = f" on port {preflight.port}" if preflight.port else ""
    return f"{shown}; all reach {preflight.master}{port}, and back"


def _interfaces(preflight: Preflight) -> str:
    used: dict[str, None] = {}
    for node, facts in preflight.each("interfaces"):
        sources = {meeting.by_address.source for meeting in node.met}
        for one in facts.get("interfaces", ()):
            fits = sources & set(one["addresses"]) if sources else one["up"] and one["addresses"]
            if fits and not (one["loopback"] and not sources):
                used[f"{one['name']} (MTU {one['mtu']})"] = None
    return ", ".join(used)


def _clocks(preflight: Preflight) -> str:
    ways = [m.by_address for node in preflight.answered for m in node.met if m.to == preflight.master]
    offsets = [way for way in ways if way.ok]
    if not offsets:
        return ""
    most = max(offsets, key=lambda way: abs(way.offset))
    return f"at most {_ms(abs(most.offset))} apart (± {_ms(most.rtt / 2)})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _disk(preflight: Preflight) -> str:
    least: dict[str, int] = {}
    for _, facts in preflight.each("disk"):
        for place in facts.get("places", ()):
            if "free" in place:
                least[place["of"]] = min(int(place["free"]), least.get(place["of"], int(place["free"])))
    return ", ".join(f"{size(free)} for {of}" for of, free in least.items())


def _limits(preflight: Preflight) -> str:
    files = [int(facts["limits"]["nofile"][0]) for _, facts in preflight.each("limits")]
    locked = [int(facts["limits"]["memlock"][0]) for _, facts in preflight.each("limits")]
    if not files:
        return _NOT_REPORTED
    return f"{_least(files)} files, {_least(locked, bytes_=True)} locked"


def _least(values: Iterable[int], *, bytes_: bool = False) -> str:
    finite = [value for value in values if value >= 0]
    if not finite:
        return "unlimited"
    return size(min(finite)) if bytes_ else str(min(finite))


def _versions(preflight: Preflight) -> str:
    first = next((facts for _, facts in preflight.each("software")), None)
    if first is None:
        return _NOT_REPORTED
    known = first["versions"]
    words = [f"{name} {known[name]}" for name in ("python", "torch", "nccl", "driver") if name in known]
    commit = first["git"].get("commit")
    return ", ".join([*words, *([f"commit {commit[:10]}"] if commit else [])])


def _gpus(preflight: Preflight) -> str:
    looks = [facts for _, facts in preflight.each("gpus")]
    kinds = dict.fromkeys(str(gpu.get("name")) for facts in looks for gpu in facts["gpus"])
    counts = {len(facts["gpus"]) for facts in looks}
    if counts == {0}:
        return "none"
    return f"{'/'.join(map(str, sorted(counts)))} a node: {', '.join(kinds)}"


def _all_reduce(preflight: Preflight) -> str:
    done = [node.reduced for node in preflight.answered if node.reduced and "all_reduce_s" in node.reduced]
    rates = {pair: max(times) for pair, times in preflight.rates.items()}
    if not done or not rates:
        return ""
    took = max(float(one["all_reduce_s"]) for one in done)
    words = f"{size(done[0]['bytes'])} over {done[0]['backend']} in {took * 1000:.0f} ms; a pair exchanges "
    low, high = min(rates.values()), max(rates.values())
    if len(rates) == 1:
        return f"{words}{size(low)}/s"
    return f"{words}{size(low)}/s to {size(high)}/s, median {size(median(rates.values()))}/s"
