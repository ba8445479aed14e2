"""Build the document of profiles: a row for each rank, what the GPU waits for, the costliest lines and operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.device import Watched
from distdbg.evidence.trace.phases import PARTS
from distdbg.evidence.trace.profile import CostlyPlace, ProfileRow, RankProfile
from distdbg.model import Unknown
from distdbg.report.document import Block, Cell, Column, Document, Paragraph, Section, Table
from distdbg.wording import counted

#: Of more ranks the slowest, by their own work, are shown.
_MOST_RANKS = 24
_MOST_ROWS = 8
#: A GPU that is busier is not asked why.
_BUSY = 0.80
#: A reason for idleness below this share of the step is not listed.
_WORTH = 0.02
#: Nor is a line that costs less.
_LEAST = 0.005
#: What a line does that costs.
_KINDS = {
    "wait": "reads values",
    "transfer": "copies pageable memory",
    "blocking": "waits for its copy",
    "copy": "lays tensors out anew",
    "alloc": "allocates",
    "constant": "makes a constant",
    "attention": "attention on the math path",
    "masked": "attention with a mask",
    "load": "loads data",
    "workers": "starts workers",
    "buffers": "broadcasts buffers",
    "parallel": "DataParallel",
    "small": "many small operators",
}
_TRY = {
    "data wait": "the loader is too slow: num_workers, persistent_workers, pin_memory",
    "synchronisation": "values read on the host: the lines are listed below",
    "transfers": "copies to and from the host: pin_memory=True with non_blocking=True",
    "allocations": "cudaMalloc in the steps: the lines are listed below",
    "small kernels": "kernels shorter than their launch: torch.compile, CUDA graphs, larger batches",
    "host": "the host launches too slowly (CPU-bound): torch.compile, less Python in the step",
}


def profile_document(profiles: Sequence[RankProfile], unread: Sequence[tuple[str, str]] = ()) -> Document:
    """The rules that judge a run, on profiles alone. `unread` are files, and why they were not read."""
    missing = (*unread, *(one for profile in profiles for one in profile.unknown))
    unknown = tuple(Unknown(what, because) for what, because in missing)
    report = build_report(RunEvidence({}, 0, (), (), profiles=tuple(profiles)))
    report = replace(report, unknown=unknown, run={}, outcome=None, exit_code=None, exit_code_of=None)
    none = Paragraph("No finding: no line costs 5 % of a step that it need not cost.")
    sections = ([] if report.findings or unknown else [Section("", (none,))]) + list(profile_sections(profiles))
    return Document(report, sections=tuple(sections), json_keys=lambda: {"profile": profile_plain(profiles)})


def profile_sections(profiles: Sequence[RankProfile]) -> Iterator[Section]:
    """Times in ms of a typical step."""
    if not profiles:
        return
    slowest = max(profiles, key=_own)
    shown = sorted(profiles, key=_own, reverse=True)[:_MOST_RANKS] if len(profiles) > _MOST_RANKS else profiles
    yield Section("", tuple(_parts(shown, len(profiles) - len(shown))))
    if gpu := tuple(_gpu(shown)):
        yield Section("", gpu)
    yield from _rows(f"lines of {slowest.who}, and what they cost at most", slowest, _places(slowest))
    yield from _rows(f"operators of {slowest.who} by their own time on the host", slowest, slowest.operators)
    yield from _rows(f"kernels of {slowest.who}", slowest, slowest.kernels)


def _own(profile: RankProfile) -> float:
    """A rank's own work: a rank that waits for others has a long step, too."""
    return profile.step_us - profile.parts.get("communication", 0.0)


def _parts(profiles: Sequence[RankProfile], left_out: int) -> Iterator[Block]:
    on_devices = any(profile.device is not None for profile in profiles)
    names = ("step ms", *PARTS, "hidden", *(["idle"] if on_devices else []))
    rows: list[tuple[Cell | str, ...]] = []
    for profile in profiles:
        parts = [_part(profile, profile.parts.get(part, 0.0)) for part in PARTS]
        busy = profile.device.busy if profile.device is not None else 1.0
        idle = [_part(profile, (1.0 - busy) * profile.step_us)] if on_devices else []
        rows.append((profile.who, _ms(profile.step_us), *parts, _ms(profile.hidden_us), *idle))
    yield Table((Column(), *(Column(name, number=True) for name in names)), tuple(rows))
    if left_out:
        yield Paragraph(f"… and {counted(left_out, 'more rank')} with less work of their own: --json has them all")
    first = profiles[0]
    cut = f"{first.counted}, cut by {first.by}" if first.steps else "no steps: all"
    yield Paragraph(f"mean of the middle half of the steps ({cut}); communication is what nothing hid", "dim")


def _part(profile: RankProfile, us: float) -> Cell:
    return Cell(_ms(us), f"{profile.share(us):>4.0%}") if us else Cell("-")


def _ms(us: float) -> str:
    return f"{us / 1000:.2f}" if us < 100_000 else f"{us / 1000:.0f}"


def _gpu(profiles: Sequence[RankProfile]) -> Iterator[Block]:
    for profile in profiles:
        device = profile.device
        if device is not None:
            yield Paragraph(
                f"{profile.who}: GPU {device.number} busy {device.busy:.0%} of the step; "
                f"{device.kernels_per_step:.0f} kernels, median {device.kernel_median_us:.1f} us; "
                f"{device.gaps_per_step:.0f} gaps, the longest {device.longest_gap_us / 1000:.2f} ms"
            )
        if profile.watched is not None:
            nvml = _nvml(profile.watched)
            yield Paragraph(nvml, indent=2) if device is not None else Paragraph(f"{profile.who}: {nvml}")
        if device is not None and device.busy < _BUSY:
            idle = sorted(((reason, share) for reason, share in device.idle.items() if share >= _WORTH),
                          key=lambda item: -item[1])  # fmt: skip
            rows = tuple(("  idle", f"{share:.0%}", reason, _TRY[reason]) for reason, share in idle)
            yield Table((Column(), Column(number=True), Column(), Column(wrap=True)), rows)


def _nvml(seen: Watched) -> str:
    """Apart from the kernels' time: it counts everybody's, and by its own clock."""
    looks = f"{seen.looks} looks" if seen.looks > 1 else "one look"
    when = "in these steps" if seen.within else "just before or after: none was in these steps"
    return f"NVML: {seen.busy:.0%} busy ({'the median of ' if seen.looks > 1 else ''}{looks} {when})"


def _places(profile: RankProfile) -> list[ProfileRow]:
    """Also those that are too cheap for a finding: many of them make a slow step, too."""
    costly = sorted((d for d in profile.costly if profile.share(d.gain_us) >= _LEAST), key=lambda d: -d.gain_us)
    return [ProfileRow(f"{d.where} {_KINDS.get(d.kind, d.kind)}{_by(d)}", d.gain_us, d.calls) for d in costly]


def _by(costly: CostlyPlace) -> str:
    return f" by {costly.place.callee}()" if costly.place and costly.place.callee else ""


def _rows(title: str, profile: RankProfile, rows: Sequence[ProfileRow]) -> Iterator[Section]:
    columns = (*(Column(name, number=True) for name in ("ms", "of step", "calls")), Column(title))
    if rows:
        cells = [
            (f"{r.us / 1000:.3f}", f"{profile.share(r.us):.0%}", f"{r.calls:.0f}", r.name) for r in rows[:_MOST_ROWS]
        ]
        yield Section("", (Table(columns, tuple(cells)),))


# -- the key `profile` of `distdbg profile --json`: microseconds of a typical step ------------------------------------


def profile_plain(profiles: Sequence[RankProfile]) -> list[dict[str, Any]]:
    """An entry a rank."""
    return [_profile(profile) for profile in profiles]


def _profile(profile: RankProfile) -> dict[str, Any]:
    return {
        "path": profile.path,
        "rank": profile.rank,
        "host": profile.host or None,
        "steps": profile.steps,
        "first": profile.first,
        "last": profile.last,
        "steps_by": profile.by,
        "step_us": profile.step_us,
        "parts_us": dict(profile.parts),
        "communication_hidden_us": profile.hidden_us,
        "loader": profile.loader or None,
        "gpu": asdict(profile.device) if profile.device else None,
        "nvml": asdict(profile.watched) if profile.watched else None,
        "operators": [asdict(row) for row in profile.operators],
        "kernels": [asdict(row) for row in profile.kernels],
        "places": [_place(costly) for costly in profile.costly],
        "unknown": [{"what": what, "because": because} for what, because in profile.unknown],
    }


def _place(costly: CostlyPlace) -> dict[str, Any]:
    place = costly.place
    return {
        "kind": costly.kind,
        "file": place.file if place else None,
        "lines": list(costly.lines),
        "function": place.function if place else None,
        "calls": place.callee or None if place else None,
        "what": costly.what or None,
        "times": costly.calls,
        "host_us": costly.us,
        "gain_us": costly.gain_us,
    }
